-- The shards of some subscriptions with those of their owners that are not forgotten.
-- Index: primary keys. Locks: none.
select shard.subscription_id, shard.shard, shard.epoch, member.id
from postrider.shard as shard
left join postrider.member as member on member.id = shard.member_id
where shard.subscription_id = any($1)
order by shard.subscription_id, shard.shard
