-- Keeps a schedule from being fired. A second pause keeps the time of the first.
-- Index: schedule_names_are_unique. Locks: the writer lock.
update postrider_schedule
set paused_at = coalesce(paused_at, ?2)
where name = ?1
