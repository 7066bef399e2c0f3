-- Emits as many events as the client sends.
-- Index: primary key of the leaf. Locks: none that anybody waits for.
copy postrider.event (topic, type, key, payload, payload_bytes, headers, due_at) from stdin (format binary)
