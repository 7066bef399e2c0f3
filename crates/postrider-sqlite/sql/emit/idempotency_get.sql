-- Finds the event that holds an idempotency key, and until when.
-- Index: primary key. Locks: none.
select event_id, until
from postrider_idempotency
where key = ?1
