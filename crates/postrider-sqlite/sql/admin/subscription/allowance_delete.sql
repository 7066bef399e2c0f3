-- Forgets what the rate of a queue allowed.
-- Index: primary key. Locks: the writer lock.
delete from postrider_allowance
where subscription_id = ?1
