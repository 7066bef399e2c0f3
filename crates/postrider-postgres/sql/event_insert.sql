-- Emits one event. A delay counts from this moment of the database's clock.
-- Index: primary key of the leaf. Locks: none that anybody waits for.
insert into postrider.event (topic, type, key, payload, headers, due_at)
values ($1, $2, $3, $4, $5, coalesce($6, postrider.clock() + $7::interval))
returning id
