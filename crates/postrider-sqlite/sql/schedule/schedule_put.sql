-- Writes a schedule under a new id; the one of this name has been deleted in the same transaction.
-- Index: primary key, schedule_names_are_unique and schedule_next. Locks: the writer lock.
insert into postrider_schedule
    (name, cron, zone, missed, topic, type, key, payload, headers, created_at, paused_at, next_at, ticked_at)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
