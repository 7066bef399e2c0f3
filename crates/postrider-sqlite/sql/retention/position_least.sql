-- The subscription that is least advanced; what lies behind its position must stay.
-- Index: none; a subscription has 16 shards. Locks: none.
select shard.last_id, subscription.name
from postrider_shard as shard
join postrider_subscription as subscription on subscription.id = shard.subscription_id
order by shard.last_id, subscription.name
limit 1
