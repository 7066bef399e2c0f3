-- Removes the shards of a subscription.
-- Index: primary key. Locks: the writer lock.
delete from postrider_shard
where subscription_id = ?1
