-- The shards of a subscription with the names of their owners.
-- Index: primary keys. Locks: none.
select shard.shard, shard.last_id, shard.epoch, member.name
from postrider_shard as shard
left join postrider_member as member on member.id = shard.member_id
where shard.subscription_id = ?1
order by shard.shard
