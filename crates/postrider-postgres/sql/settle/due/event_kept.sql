-- Some events whose leaf was emptied.
-- Index: primary key. Locks: none.
select id, topic, type, key, case when size <= 1048580 then payload end, case when size <= 1048580 then payload_bytes end,
    headers, created_at, due_at, lengths, size
from postrider.kept_cut as kept
where id = any($1)
