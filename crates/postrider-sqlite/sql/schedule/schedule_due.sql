-- The schedules whose time has come, the longest due first.
-- Index: schedule_next. Locks: none.
select id, name, cron, zone, missed, topic, type, key, created_at, paused_at, next_at, ticked_at
from postrider_schedule
where paused_at is null
    and next_at <= ?1
order by next_at, id
