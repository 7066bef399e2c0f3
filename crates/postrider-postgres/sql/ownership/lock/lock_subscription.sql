-- Waits until nobody settles for the subscription, and keeps them from it.
-- Index: none. Locks: an advisory lock until the transaction ends.
select pg_advisory_xact_lock(('postrider.shard'::regclass::oid::bigint << 32) | $1::bigint)
