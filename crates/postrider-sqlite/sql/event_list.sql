-- Reads events backwards from an id, for listings.
-- Index: primary key. Locks: none.
select id, topic, type, key, payload, headers, created_at, due_at
from postrider_event
where id < ?1
order by id desc
