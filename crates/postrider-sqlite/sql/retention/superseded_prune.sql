-- Forgets that an event was superseded which is gone.
-- Index: primary key. Locks: the writer lock.
delete from postrider_superseded
where event_id = ?1
