-- Inserts a bare row.
-- Index: primary key. Locks: none that anybody waits for.
insert into postrider_bench.event (topic, type, key, payload, payload_bytes, headers, due_at)
values ($1, $2, $3, $4, $5, $6, $7)
returning id
