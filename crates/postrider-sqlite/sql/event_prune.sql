-- Removes one event, unless a delivery refers to it or a position lies before it.
-- Index: primary key, postrider_delivery_event. Locks: the writer lock.
delete from postrider_event
where id = ?1
    and id <= ?2
    and not exists (select 1 from postrider_delivery as delivery where delivery.event_id = ?1)
