-- Removes a schedule.
-- Index: schedule_names_are_unique. Locks: the row.
delete from postrider.schedule
where name = $1
returning id, name, cron, zone, missed, topic, type, key, created_at, paused_at, next_at, ticked_at
