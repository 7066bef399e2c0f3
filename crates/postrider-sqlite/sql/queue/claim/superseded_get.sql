-- Whether a newer event has taken over the idempotency key of this one.
-- Index: primary key. Locks: none.
select 1
from postrider_superseded
where event_id = ?1
