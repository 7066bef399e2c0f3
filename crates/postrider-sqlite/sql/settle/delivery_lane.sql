-- What waits behind the head of a lane, in lane order.
-- Index: postrider_delivery_lane. Locks: none.
select event_id, turn, attempts, edited_payload
from postrider_delivery indexed by postrider_delivery_lane
where subscription_id = ?1
    and key = ?2
    and late = ?3
    and parks = 1
    and waits = 1
order by turn, event_id
