-- Who owns the shards of a subscription, and at which epochs.
-- Index: primary keys. Locks: none of its own; a settle holds the subscription's lock already.
select shard.shard, shard.member_id, shard.epoch, subscription.fence, subscription.paused_at is not null
from postrider.shard as shard
join postrider.subscription as subscription on subscription.id = shard.subscription_id
where shard.subscription_id = $1
