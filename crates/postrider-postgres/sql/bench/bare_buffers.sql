-- Pages that were looked at for the rows of queues, and how large these and their indexes are.
-- Index: none. Locks: none.
select coalesce(sum(heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read), 0)::bigint,
    coalesce(sum(pg_total_relation_size(relid)), 0)::bigint
from pg_statio_user_tables
where schemaname = 'postrider'
    and relname in ('queued', 'claim')
