-- Records a failed attempt under the name of its member; a repeat replaces it.
-- Index: primary keys. Locks: the writer lock.
insert or replace into postrider_attempt (subscription_id, event_id, attempt, started_at, took_us, member, error)
values (?1, ?2, ?3, ?4, ?5, coalesce((select name from postrider_member where id = ?6), ''), ?7)
