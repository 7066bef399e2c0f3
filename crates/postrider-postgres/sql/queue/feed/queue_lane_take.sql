-- Takes those buckets of lanes alone in which nobody is just taking a head away, and leaves word of them for the
-- statement that feeds rows: what follows in the same flight cannot be told otherwise. It never waits. Index: none.
-- Locks: an advisory lock for each bucket that is free, until the transaction ends.
select set_config('postrider.buckets', coalesce(string_agg(bucket::text, ','), ''), true)
from (select distinct unnest($2::integer[]) as bucket) as buckets
where pg_try_advisory_xact_lock(
    (('postrider.queued'::regclass::oid::bigint + $1::bigint * 7919) % 2147483647)::integer, bucket
)
