-- Forgets the idempotency key of an event that is gone.
-- Index: postrider_idempotency_event. Locks: the writer lock.
delete from postrider_idempotency
where event_id = ?1
