-- Some events whose leaf was emptied.
-- Index: primary key. Locks: none.
select id, topic, type, key, payload, headers, created_at, due_at, lengths
from postrider.kept_cut as kept
where id = any($1)
