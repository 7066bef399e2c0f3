-- Takes those buckets of lanes alone in which nobody is just taking a head away. It never waits: a handler may hold one for
-- as long as its transaction runs.
-- Index: none. Locks: an advisory lock for each bucket that is free, until the transaction ends.
select bucket
from (select distinct unnest($2::integer[]) as bucket) as buckets
where pg_try_advisory_xact_lock(
    (('postrider.queued'::regclass::oid::bigint + $1::bigint * 7919) % 2147483647)::integer, bucket
)
