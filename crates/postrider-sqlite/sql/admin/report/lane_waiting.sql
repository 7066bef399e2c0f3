-- How many rows wait behind the head of a lane.
-- Index: postrider_delivery_lane. Locks: none.
select count(*)
from postrider_delivery indexed by postrider_delivery_lane
where subscription_id = ?1
    and key = ?2
    and late = ?3
    and parks = 1
    and waits = 1
