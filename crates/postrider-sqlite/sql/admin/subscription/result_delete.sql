-- Removes what was kept for a subscription.
-- Index: primary key. Locks: the writer lock.
delete from postrider_result
where subscription_id = ?1
