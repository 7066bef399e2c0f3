-- Keeps rows from being fed into lanes until the transaction ends: a settle that takes a head away looks for the next
-- one undisturbed. In one order for all. Index: none. Locks: an advisory lock for each bucket of lanes, shared.
select pg_advisory_xact_lock_shared(
    (('postrider.queued'::regclass::oid::bigint + $1::bigint * 7919) % 2147483647)::integer, bucket
)
from (select distinct unnest($2::integer[]) as bucket order by 1) as buckets
