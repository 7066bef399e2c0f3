-- Emits as many events as the client sends.
-- Index: primary key of the leaf. Locks: none that anybody waits for.
copy postrider.event (topic, type, key, payload, headers, due_at) from stdin (format binary)
