-- Subscriptions that do not have all their shards.
-- Index: primary keys. Locks: none.
select subscription.name, count(shard.shard), subscription.shard_count
from postrider.subscription as subscription
left join postrider.shard as shard on shard.subscription_id = subscription.id
group by subscription.id
having count(shard.shard) <> subscription.shard_count
order by subscription.name
