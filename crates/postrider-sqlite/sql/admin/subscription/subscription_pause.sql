-- Stops hand-out. A second pause keeps the time of the first.
-- Index: primary key. Locks: the writer lock.
update postrider_subscription
set paused_at = coalesce(paused_at, ?2)
where id = ?1
