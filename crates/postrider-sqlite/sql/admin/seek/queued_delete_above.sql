-- Removes the queued rows of a subscription that begin above a position.
-- Index: primary key. Locks: the writer lock.
delete from postrider_queued
where subscription_id = ?1
    and event_id > ?2
