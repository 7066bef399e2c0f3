-- Functions of outbox tables that were dropped without being detached, of the store in schema $1.
-- Index: the catalog's own. Locks: none.
select made.proname::text
from pg_catalog.pg_proc as made
join pg_catalog.pg_namespace as schema on schema.oid = made.pronamespace
where schema.nspname = $1::text
    and made.proname ~ '^outbox_[0-9]{1,18}$'
    and not exists (select from pg_catalog.pg_trigger as attached where attached.tgfoid = made.oid)
order by 1
limit 100
