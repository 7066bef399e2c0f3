-- Ends a pause.
-- Index: primary key. Locks: the writer lock.
update postrider_subscription
set paused_at = null
where id = ?1
