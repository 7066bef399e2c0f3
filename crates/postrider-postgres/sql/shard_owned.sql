-- Whether another member that lives holds a shard of the subscription.
-- Index: primary keys. Locks: none of its own; it counts under the subscription's lock.
select exists (
    select
    from postrider.shard as shard
    join postrider.member as member on member.id = shard.member_id
    where shard.subscription_id = $1
        and member.id <> $2
        and member.beat_at + member.lease > postrider.clock()
)
