-- How many lanes of a subscription are parked.
-- Index: postrider_delivery_head. Locks: none.
select count(*)
from postrider_delivery indexed by postrider_delivery_head
where subscription_id = ?1
    and parks = 1
    and waits = 0
