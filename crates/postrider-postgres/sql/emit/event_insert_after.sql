-- Emits one event with a delay that counts from this moment of the database's clock.
-- Index: primary key of the leaf. Locks: none that anybody waits for.
insert into postrider.event (topic, type, key, payload, payload_bytes, headers, due_at)
values ($1, $2, $3, $4, $5, $6, postrider.clock() + $7::interval)
returning id
