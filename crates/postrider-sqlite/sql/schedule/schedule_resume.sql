-- Ends a pause.
-- Index: schedule_names_are_unique. Locks: the writer lock.
update postrider_schedule
set paused_at = null
where name = ?1
