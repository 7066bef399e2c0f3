-- The events of a claim that were cancelled.
-- Index: primary key. Locks: none.
select event_id
from postrider_cancelled
where token = ?1
order by event_id
