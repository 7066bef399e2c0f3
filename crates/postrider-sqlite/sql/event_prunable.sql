-- Walks the log for retention: which events are old, and does a delivery still need them?
-- Index: primary key, and postrider_delivery_event for each old row. Locks: none.
select
    event.id,
    event.created_at < ?2 as old,
    exists (select 1 from postrider_delivery as delivery where delivery.event_id = event.id) as needed,
    octet_length(event.payload) as bytes
from postrider_event as event
where event.id > ?1
order by event.id
