-- The oldest event behind an id.
-- Index: primary key. Locks: none.
select id, created_at
from postrider_event
where id > ?1
order by id
limit 1
