-- Removes the row of a delivery that is done.
-- Index: primary key. Locks: the writer lock.
delete from postrider_delivery
where subscription_id = ?1
    and event_id = ?2
