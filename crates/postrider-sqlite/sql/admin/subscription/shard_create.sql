-- Adds one shard of a new subscription.
-- Index: primary key. Locks: the writer lock.
insert into postrider_shard (subscription_id, shard, member_id, epoch, last_id)
values (?1, ?2, null, 0, ?3)
