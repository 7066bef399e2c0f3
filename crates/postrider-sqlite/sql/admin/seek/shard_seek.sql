-- Moves all shards of a subscription in either direction and takes them from their owner.
-- Index: primary key. Locks: the writer lock.
update postrider_shard
set last_id = ?2,
    member_id = null,
    epoch = epoch + 1
where subscription_id = ?1
