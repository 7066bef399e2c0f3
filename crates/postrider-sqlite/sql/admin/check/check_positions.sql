-- Subscriptions that do not have all their shards, or whose position lies behind the newest event.
-- Index: primary keys. Locks: none.
select subscription.name, count(shard.shard), coalesce(max(shard.last_id), 0)
from postrider_subscription as subscription
left join postrider_shard as shard on shard.subscription_id = subscription.id
group by subscription.id
having count(shard.shard) <> ?1 or max(shard.last_id) > ?2
