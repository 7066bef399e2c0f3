-- Waits until none of some members settles for the subscription, and keeps them from it. Others settle on.
-- Index: none. Locks: the subscription's advisory lock, shared, and those of the members in it, alone and in the order
-- of their numbers, until the transaction ends.
select pg_advisory_xact_lock_shared(('postrider.shard'::regclass::oid::bigint << 32) | $1::bigint),
    (
        select count(pg_advisory_xact_lock(
            (('postrider.shard'::regclass::oid::bigint + $1::bigint * 7919) % 2147483647)::integer,
            (member.id % 2147483647)::integer
        ))
        from (select id from unnest($2::bigint[]) as wanted (id) order by id offset 0) as member
    )
