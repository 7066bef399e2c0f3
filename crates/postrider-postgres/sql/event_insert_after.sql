-- Emits one event with a delay that counts from this moment of the database's clock.
-- Index: primary key of the leaf. Locks: none that anybody waits for.
insert into postrider.event (topic, type, key, payload, headers, due_at)
values ($1, $2, $3, $4, $5, postrider.clock() + $6::interval)
returning id
