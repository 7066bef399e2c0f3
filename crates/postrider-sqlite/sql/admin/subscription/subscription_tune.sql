-- Changes what may change at any time.
-- Index: primary key. Locks: the writer lock.
update postrider_subscription
set tuning = ?2
where id = ?1
