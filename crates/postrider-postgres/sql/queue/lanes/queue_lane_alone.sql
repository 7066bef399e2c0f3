-- Keeps everybody else from giving these lanes heads or taking them away, and waits for those who do.
-- Index: none. Locks: an advisory lock for each bucket of lanes, alone, in one order.
select pg_advisory_xact_lock(
    (('postrider.queued'::regclass::oid::bigint + $1::bigint * 7919) % 2147483647)::integer, bucket
)
from (select distinct unnest($2::integer[]) as bucket order by 1) as buckets
