-- Who owns the shards of a subscription, at which epochs, and whether it is paused. Every call of an owner
-- begins with this.
-- Index: primary keys. Locks: none of its own; in a writing call the writer lock is held already.
select shard.shard, shard.member_id, shard.epoch, subscription.paused_at is not null
from postrider_shard as shard
join postrider_subscription as subscription on subscription.id = shard.subscription_id
where shard.subscription_id = ?1
