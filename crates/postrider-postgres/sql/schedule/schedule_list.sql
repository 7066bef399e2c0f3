-- All schedules by name, whatever language the database sorts by.
-- Index: none; there are few. Locks: none.
select id, name, cron, zone, missed, topic, type, key, created_at, paused_at, next_at, ticked_at
from postrider.schedule
order by name collate "C"
