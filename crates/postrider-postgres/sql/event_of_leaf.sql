-- Some events of one leaf.
-- Index: the leaf's primary key. Locks: none.
select id, topic, type, key, payload, payload_bytes, headers, created_at, due_at
from postrider.event_leaf
where id = any($1)
