-- The head of a lane among queued rows, if it has one.
-- Index: postrider_queued_head. Locks: none.
select event_id
from postrider_queued indexed by postrider_queued_head
where subscription_id = ?1
    and key = ?2
    and late = ?3
    and parks = 1
    and state <> 'waiting'
limit 1
