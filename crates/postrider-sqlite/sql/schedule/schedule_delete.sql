-- Removes a schedule.
-- Index: schedule_names_are_unique. Locks: the writer lock.
delete from postrider_schedule
where name = ?1
