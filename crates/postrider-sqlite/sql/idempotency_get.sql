-- Finds the event that was first emitted under an idempotency key.
-- Index: primary key. Locks: none.
select event_id
from postrider_idempotency
where key = ?1
