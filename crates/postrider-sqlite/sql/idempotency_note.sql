-- Notes which event a claimed idempotency key stands for.
-- Index: primary key. Locks: the writer lock.
update postrider_idempotency
set event_id = ?2
where key = ?1
