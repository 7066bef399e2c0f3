-- Copies bare rows.
-- Index: primary key. Locks: none that anybody waits for.
copy postrider_bench.event (topic, type, key, payload, headers, due_at) from stdin (format binary)
