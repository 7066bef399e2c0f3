-- Locks those buckets of lanes exclusively from which no settle is taking a head, and records them for the statement
-- that feeds rows, because a later statement of the same flight cannot get them as a parameter. It never waits. Index:
-- none. Locks: an advisory lock for each bucket that is free, until the transaction ends.
select set_config('postrider.buckets', coalesce(string_agg(bucket::text, ','), ''), true)
from (select distinct unnest($2::integer[]) as bucket) as buckets
where pg_try_advisory_xact_lock(
    (('postrider.queued'::regclass::oid::bigint + $1::bigint * 7919) % 2147483647)::integer, bucket
)
