-- Who stands for a subscription and lives, and by shard the owner that lives.
-- Index: primary keys. Locks: none.
select
    array(
        select standing.member_id
        from postrider.standing as standing
        join postrider.member as member on member.id = standing.member_id
        where standing.subscription_id = $1
            and postrider.lives(member.beat_at, member.lease)
        order by standing.member_id
    ),
    array(
        select case when postrider.lives(member.beat_at, member.lease) then shard.member_id end
        from postrider.shard as shard
        left join postrider.member as member on member.id = shard.member_id
        where shard.subscription_id = $1
        order by shard.shard
    )
