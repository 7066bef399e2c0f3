-- Reads the events of one run of consecutive ids.
-- Index: primary key. Locks: none.
select id, topic, type, key, payload, headers, created_at, due_at
from postrider_event
where id >= ?1
    and id < ?2
order by id
