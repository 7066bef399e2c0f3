-- Reads a thousand rows of the log, as a bare loop would.
-- Index: primary key. Locks: none.
select id, topic, type, key, payload, headers, created_at, due_at
from postrider_event
where id > ?1
order by id
limit 1000
