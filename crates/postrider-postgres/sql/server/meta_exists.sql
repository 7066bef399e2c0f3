-- Whether the schema holds Postrider's tables.
-- Index: pg_class's own. Locks: none.
select to_regclass(format('%I.meta', $1::text)) is not null
