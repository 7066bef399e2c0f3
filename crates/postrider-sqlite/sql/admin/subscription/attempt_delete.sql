-- Removes what is recorded of a subscription's attempts.
-- Index: primary key. Locks: the writer lock.
delete from postrider_attempt
where subscription_id = ?1
