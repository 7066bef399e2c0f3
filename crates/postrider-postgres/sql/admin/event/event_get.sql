-- Some events, from one leaf or kept after it was emptied. Both in one statement: an event that is just being moved
-- from one to the other is seen in either.
-- Index: primary keys. Locks: none.
select id, topic, type, key, case when size <= 1048580 then payload end, case when size <= 1048580 then payload_bytes end,
    headers, created_at, due_at, lengths, size, xid
from postrider.event_cut as event
where id = any($1)
union all
select id, topic, type, key, case when size <= 1048580 then payload end, case when size <= 1048580 then payload_bytes end,
    headers, created_at, due_at, lengths, size, null
from postrider.kept_cut as kept
where id = any($1)
