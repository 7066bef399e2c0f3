-- The head of a lane, if it has one.
-- Index: postrider_delivery_head. Locks: none.
select event_id
from postrider_delivery indexed by postrider_delivery_head
where subscription_id = ?1
    and key = ?2
    and late = ?3
    and parks = 1
    and waits = 0
order by event_id
limit 1
