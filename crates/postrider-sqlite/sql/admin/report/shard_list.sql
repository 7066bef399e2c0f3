-- The shards of a subscription with those of their owners that are not forgotten.
-- Index: primary keys. Locks: none.
select shard.shard, shard.last_id, shard.epoch, member.id
from postrider_shard as shard
left join postrider_member as member on member.id = shard.member_id
where shard.subscription_id = ?1
order by shard.shard
