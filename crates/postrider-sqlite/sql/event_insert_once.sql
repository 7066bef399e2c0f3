-- Emits an event unless its idempotency key is known. No row comes back if it is.
-- Index: primary key and postrider_event_idempotency. Locks: the writer lock.
insert into postrider_event (topic, type, key, payload, headers, created_at, due_at, idempotency_key)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
on conflict do nothing
returning id
