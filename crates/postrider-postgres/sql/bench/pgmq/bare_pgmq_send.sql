-- Sends messages of a hundred bytes.
-- Index: as PGMQ has them. Locks: none that anybody waits for.
select count(*)
from pgmq.send_batch('bench', array(select jsonb_build_object('x', repeat('x', 90)) from generate_series(1, $1::integer)))
