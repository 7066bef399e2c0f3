-- Finds the event that was first emitted under an idempotency key.
-- Index: postrider_event_idempotency. Locks: none.
select id
from postrider_event
where idempotency_key = ?1
