-- Leaves an outbox table alone; whether it was not. A name without a schema means a table in `public`.
-- Index: none. Locks: the table against all others, which it waits for and which wait for it.
select postrider.outbox_detach(
    coalesce(
        case when cardinality(parse_ident($1::text)) = 1 then to_regclass('public.' || $1::text) end, $1::text::regclass
    )
)
