-- Who stands for a subscription and lives in the eyes of member $2, and by shard the owner that lives.
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
    )
