-- Rows that have a due time, soonest first. Stepped until one is not due yet.
-- Index: postrider_delivery_due, which covers it: rows that the owner has in memory cost one step each. Locks: none.
select event_id, due_at
from postrider_delivery indexed by postrider_delivery_due
where subscription_id = ?1
    and due_at is not null
order by due_at, event_id
