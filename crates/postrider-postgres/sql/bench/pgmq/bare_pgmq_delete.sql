-- Deletes messages.
-- Index: as PGMQ has them. Locks: the messages.
select count(*)
from pgmq.delete('bench', $1::bigint[])
