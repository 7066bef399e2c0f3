-- Whether this role may read payloads; no for a role that may not know of the log, null if there is none yet.
-- Index: of the catalogue. Locks: none.
select (
    select has_column_privilege(class.oid, 'payload', 'select')
    from pg_catalog.pg_class as class
    join pg_catalog.pg_namespace as namespace on namespace.oid = class.relnamespace
    where namespace.nspname = $1::text
        and class.relname = 'event'
)
