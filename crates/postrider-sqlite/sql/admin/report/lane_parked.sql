-- The parked lanes whose heads are the oldest.
-- Index: postrider_delivery_head. Locks: none.
select key, late, event_id, due_at
from postrider_delivery indexed by postrider_delivery_head
where subscription_id = ?1
    and parks = 1
    and waits = 0
order by event_id
limit ?2
