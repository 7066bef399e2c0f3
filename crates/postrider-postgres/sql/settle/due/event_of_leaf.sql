-- Some events of one leaf.
-- Index: the leaf's primary key. Locks: none.
select id, topic, type, key, case when size <= 1048580 then payload end, case when size <= 1048580 then payload_bytes end,
    headers, created_at, due_at, lengths, size
from postrider.event_cut as event
where id = any($1)
