-- One schedule by name, with what it emits.
-- Index: schedule_names_are_unique. Locks: none.
select id, name, cron, zone, missed, topic, type, key, created_at, paused_at, next_at, ticked_at, payload, headers
from postrider_schedule
where name = ?1
