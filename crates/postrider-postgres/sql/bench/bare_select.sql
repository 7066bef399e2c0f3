-- Reads bare rows into owned values, in the order of their ids.
-- Index: primary key. Locks: none.
select id, topic, type, key, payload, payload_bytes, headers, created_at, due_at
from postrider_bench.event
where id > $1
order by id
limit 4000
