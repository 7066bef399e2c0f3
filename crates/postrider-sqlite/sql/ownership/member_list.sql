-- All members, with what tells whether they live.
-- Index: primary key. Locks: none.
select id, pid, pid_namespace, boot_id, started, beat_at, name
from postrider_member
order by id
