-- Some events of one leaf.
-- Index: the leaf's primary key. Locks: none.
select id, topic, type, key, payload, headers, created_at, due_at, lengths
from postrider.event_cut as event
where id = any($1)
