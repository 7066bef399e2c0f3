-- Copies the events that exceptions still need out of a leaf.
-- Index: delivery_event, primary keys. Locks: the new rows; the leaf's lock is held.
insert into postrider.kept_event (id, created_at, due_at, topic, type, key, headers, payload, payload_bytes)
select id, created_at, due_at, topic, type, key, headers, payload, payload_bytes
from postrider.event_leaf
where id in (select event_id from postrider.delivery)
    or id in (select event_id from postrider.queued)
on conflict (id) do nothing
