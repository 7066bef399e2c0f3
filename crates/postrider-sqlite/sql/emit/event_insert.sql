-- Emits an event in the caller's transaction. This is all that a producer pays.
-- Index: the primary key only. Locks: the database's one writer lock, as any write.
insert into postrider_event (topic, type, key, payload, headers, created_at, due_at)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7)
