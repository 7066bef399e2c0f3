-- Keeps the subscription's shards from changing hands.
-- Index: none. Locks: a shared advisory lock until the transaction ends.
select pg_advisory_xact_lock_shared(('postrider.shard'::regclass::oid::bigint << 32) | $1::bigint)
