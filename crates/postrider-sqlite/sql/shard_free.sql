-- Takes all shards of a subscription from their owner.
-- Index: primary key. Locks: the writer lock.
update postrider_shard
set member_id = null,
    epoch = epoch + 1
where subscription_id = ?1
