-- The first lane behind (key, late) in which a row waits: one step of a walk over lanes that touches one row
-- of each, however many wait in it.
-- Index: postrider_delivery_lane. Locks: none.
select key, late
from postrider_delivery indexed by postrider_delivery_lane
where subscription_id = ?1
    and parks = 1
    and waits = 1
    and (key, late) > (?2, ?3)
order by key, late
limit 1
