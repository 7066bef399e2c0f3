-- Makes the first row that waits in a lane its head, due now.
-- Index: postrider_delivery_lane, then the primary key. Locks: the writer lock.
update postrider_delivery
set due_at = ?4
where subscription_id = ?1
    and event_id = (
        select event_id
        from postrider_delivery indexed by postrider_delivery_lane
        where subscription_id = ?1
            and key = ?2
            and late = ?3
            and parks = 1
            and waits = 1
        order by turn, event_id
        limit 1
    )
