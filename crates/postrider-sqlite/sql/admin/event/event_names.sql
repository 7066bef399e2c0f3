-- Topic and type of the events behind an id, as far as a limit, and when each was emitted.
-- Index: primary key. Locks: none.
select id, topic, type, created_at
from postrider_event
where id > ?1
order by id
limit ?2
