-- Gives up a dead letter that nothing waits for.
-- Index: primary key. Locks: the writer lock.
delete from postrider_delivery
where subscription_id = ?1
    and event_id = ?2
    and state = 'dead'
    and parks = 0
