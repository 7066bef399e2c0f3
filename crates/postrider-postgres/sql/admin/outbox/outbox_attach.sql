-- Makes events of the rows of another program's outbox table; how many were made of those that were there. A name
-- without a schema means a table in `public`. Index: none. Locks: the table against writers, which it waits for and
-- which wait for it.
select postrider.outbox_attach(
    coalesce(
        case when cardinality(parse_ident($1::text)) = 1 then to_regclass('public.' || $1::text) end, $1::text::regclass
    ),
    $2, $3, $4, $5, $6, $7, $8, $9
)
