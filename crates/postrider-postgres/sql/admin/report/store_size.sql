-- What the schema's tables take on disk with their indexes, and which release this is.
-- Index: those of the catalogue. Locks: none.
select
    (
        select coalesce(sum(pg_total_relation_size(class.oid)), 0)::bigint
        from pg_catalog.pg_class as class
        where class.relnamespace = to_regnamespace(format('%I', $1::text))
            and class.relkind in ('r', 'S')
    ),
    current_setting('server_version')
