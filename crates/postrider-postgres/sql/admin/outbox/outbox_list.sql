-- The outbox tables whose rows become events of the store in schema $1. Partitions have triggers of their own, which go
-- with the one of their table. Index: none. Locks: none.
select attached.tgrelid::regclass::text
from pg_catalog.pg_trigger as attached
inner join pg_catalog.pg_proc as made on made.oid = attached.tgfoid
inner join pg_catalog.pg_namespace as schema on schema.oid = made.pronamespace
where attached.tgname = 'postrider_outbox'
    and schema.nspname = $1::text
    and attached.tgparentid = 0
order by 1
