-- Waits until no member settles for the subscription, and keeps members from it. Index: none. Locks: an advisory lock
-- until the transaction ends.
select pg_advisory_xact_lock(('postrider.shard'::regclass::oid::bigint << 32) | $1::bigint)
