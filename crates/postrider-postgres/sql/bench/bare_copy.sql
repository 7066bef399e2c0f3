-- Copies bare rows.
-- Index: primary key. Locks: none that anybody waits for.
copy postrider_bench.event (topic, type, key, payload, payload_bytes, headers, due_at) from stdin (format binary)
