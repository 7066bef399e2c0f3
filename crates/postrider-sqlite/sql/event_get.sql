-- Reads one event.
-- Index: primary key. Locks: none.
select id, topic, type, key, payload, headers, created_at, due_at
from postrider_event
where id = ?1
