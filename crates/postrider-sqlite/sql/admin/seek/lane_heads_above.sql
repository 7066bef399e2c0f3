-- The lanes of a subscription whose head lies above a position.
-- Index: postrider_delivery_head. Locks: none.
select key, late
from postrider_delivery indexed by postrider_delivery_head
where subscription_id = ?1
    and parks = 1
    and waits = 0
    and event_id > ?2
