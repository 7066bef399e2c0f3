-- All schedules by name.
-- Index: schedule_names_are_unique. Locks: none.
select id, name, cron, zone, missed, topic, type, key, created_at, paused_at, next_at, ticked_at
from postrider_schedule
order by name
