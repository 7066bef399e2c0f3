-- Notes which event an idempotency key stands for, and until when.
-- Index: primary key. Locks: the writer lock.
update postrider_idempotency
set event_id = ?2, until = ?3
where key = ?1
