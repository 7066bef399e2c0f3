-- Makes the first row that waits in a lane ready.
-- Index: postrider_queued_lane, then the primary key. Locks: the writer lock.
update postrider_queued
set state = 'ready'
where subscription_id = ?1
    and event_id = (
        select event_id
        from postrider_queued indexed by postrider_queued_lane
        where subscription_id = ?1
            and key = ?2
            and late = ?3
            and state = 'waiting'
        order by turn, event_id
        limit 1
    )
