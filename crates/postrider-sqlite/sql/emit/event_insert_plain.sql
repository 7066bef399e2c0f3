-- Emits an event without headers and delay: the usual one, with fewer values to hand over.
-- Index: the primary key only. Locks: the database's one writer lock, as any write.
insert into postrider_event (topic, type, key, payload, created_at)
values (?1, ?2, ?3, ?4, ?5)
