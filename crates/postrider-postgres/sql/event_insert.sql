-- Emits one event.
-- Index: the leaf's primary key. Locks: the row.
insert into postrider.event (topic, type, key, payload, headers, due_at)
values ($1, $2, $3, $4, $5, $6)
returning id
