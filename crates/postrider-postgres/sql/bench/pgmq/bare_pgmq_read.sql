-- Reads messages, which others do not see for half a minute.
-- Index: as PGMQ has them. Locks: the messages, for an instant.
select msg_id, message::text
from pgmq.read('bench', 30, $1::integer)
