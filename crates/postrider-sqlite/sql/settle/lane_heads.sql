-- The lanes of a subscription that have a head.
-- Index: postrider_delivery_head. Locks: none.
select key, late
from postrider_delivery indexed by postrider_delivery_head
where subscription_id = ?1
    and parks = 1
    and waits = 0
