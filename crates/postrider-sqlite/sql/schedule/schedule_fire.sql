-- Moves a schedule on from where it was seen, unless another process has, and says what it emits.
-- Index: primary key. Locks: the writer lock.
update postrider_schedule
set next_at = ?3,
    ticked_at = coalesce(?4, ticked_at)
where id = ?1
    and next_at = ?2
    and paused_at is null
returning id, name, cron, zone, missed, topic, type, key, created_at, paused_at, next_at, ticked_at, payload, headers
