-- Some events whose leaf was emptied.
-- Index: primary key. Locks: none.
select id, topic, type, key, payload, payload_bytes, headers, created_at, due_at
from postrider.kept_event
where id = any($1)
