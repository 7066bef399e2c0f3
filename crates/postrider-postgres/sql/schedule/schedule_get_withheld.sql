-- As schedule_get, for those who may not read payloads and headers.
-- Index: schedule_names_are_unique. Locks: none.
select id, name, cron, zone, missed, topic, type, key, created_at, paused_at, next_at, ticked_at, null::json,
    null::bytea, null::json
from postrider.schedule
where name = $1
