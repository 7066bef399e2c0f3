-- Emits one event that has an idempotency key, and returns the first one's id if the key is taken. A function, since
-- one statement cannot do it: its snapshot does not show the row that it had to wait for. Index: primary keys of the
-- idempotency key and of the leaf. Locks: waits for a transaction that emits with the same key.
select postrider.event_emit(
    topic => $1,
    type => $2,
    key => $3,
    payload => $4,
    payload_bytes => $5,
    headers => $6,
    due_at => $7,
    due_in => $8,
    idempotency_key => $9,
    unique_for => $10,
    replace => $11
)
