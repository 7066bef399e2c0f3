-- Emits one event that has an idempotency key, and returns the first one's id if the key is taken. A function, since
-- one statement cannot do it: its snapshot does not show the row that it had to wait for.
-- Index: primary keys of the idempotency key and of the leaf. Locks: waits for whoever emits with the same key.
select postrider.emit(
    topic => $1,
    type => $2,
    key => $3,
    payload => $4,
    headers => $5,
    due_at => $6,
    due_in => $7,
    idempotency_key => $8,
    unique_for => $9,
    replace => $10
)
