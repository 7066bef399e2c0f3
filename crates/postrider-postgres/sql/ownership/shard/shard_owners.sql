-- The owners of a subscription's shards, and whether they live in the eyes of member $2.
-- Index: primary keys. Locks: none of its own; it counts under the locks of those whose shards are taken.
select shard.shard, shard.member_id, coalesce(postrider.lives(member.beat_at, member.lease, me.steady_since), false)
from postrider.shard as shard
left join postrider.member as member on member.id = shard.member_id
left join postrider.member as me on me.id = $2
where shard.subscription_id = $1
