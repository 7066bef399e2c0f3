-- Keeps the shards that a member holds of a subscription from changing hands, and the subscription from being moved.
-- The function `hold_check` takes the same two, for those who do not wait for an answer in between.
-- Index: none. Locks: two shared advisory locks until the transaction ends, the subscription's and the member's in it.
select pg_catalog.pg_advisory_xact_lock_shared(('postrider.shard'::regclass::oid::bigint << 32) | $1::bigint),
    pg_catalog.pg_advisory_xact_lock_shared(
        (('postrider.shard'::regclass::oid::bigint + $1::bigint * 7919) % 2147483647::bigint)::integer,
        ($2::bigint % 2147483647::bigint)::integer
    )
