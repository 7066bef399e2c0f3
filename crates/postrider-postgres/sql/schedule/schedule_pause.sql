-- Keeps a schedule from being fired. A second pause keeps the time of the first.
-- Index: schedule_names_are_unique. Locks: the row.
update postrider.schedule
set paused_at = coalesce(paused_at, postrider.clock())
where name = $1
returning id, name, cron, zone, missed, topic, type, key, created_at, paused_at, next_at, ticked_at
