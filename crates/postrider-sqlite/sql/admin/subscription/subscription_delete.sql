-- Removes a subscription; its shards, deliveries, queued rows and attempts go in the same transaction.
-- Index: primary key. Locks: the writer lock.
delete from postrider_subscription
where id = ?1
