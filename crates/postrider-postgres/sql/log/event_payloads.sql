-- The payloads of some events.
-- Index: the leaf's primary key. Locks: none.
select id, payload, payload_bytes
from postrider.event_leaf
where id = any($1)
