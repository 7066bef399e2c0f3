-- Who stands for a subscription and lives in the eyes of member $2, by shard the owner that lives, and the shards of
-- owners that have not beaten since $2 joined: a clock that was set back meanwhile makes fewer of them, never more.
-- Index: primary keys. Locks: none.
select
    array(
        select standing.member_id
        from postrider.standing as standing
        join postrider.member as member on member.id = standing.member_id
        left join postrider.member as me on me.id = $2
        where standing.subscription_id = $1
            and postrider.lives(member.beat_at, member.lease, me.steady_since)
        order by standing.member_id
    ),
    array(
        select case when postrider.lives(member.beat_at, member.lease, me.steady_since) then shard.member_id end
        from postrider.shard as shard
        left join postrider.member as member on member.id = shard.member_id
        left join postrider.member as me on me.id = $2
        where shard.subscription_id = $1
        order by shard.shard
    ),
    array(
        select shard.shard
        from postrider.shard as shard
        join postrider.member as member on member.id = shard.member_id
        join postrider.member as me on me.id = $2
        where shard.subscription_id = $1
            and member.id <> me.id
            and member.beat_at <= me.joined_at
            and postrider.lives(member.beat_at, member.lease, me.steady_since)
    )
