-- Emits many events of which some have an idempotency key, one after the other.
-- Index: primary keys of the idempotency key and of the leaf. Locks: waits for whoever emits with the same key.
select postrider.emit(
    topic => topic,
    type => type,
    key => key,
    payload => payload,
    headers => headers,
    due_at => due_at,
    due_in => due_in,
    idempotency_key => idempotency_key,
    unique_for => unique_for,
    replace => replace
)
from unnest(
    $1::text[],
    $2::text[],
    $3::text[],
    $4::bytea[],
    $5::json[],
    $6::timestamptz[],
    $7::interval[],
    $8::text[],
    $9::interval[],
    $10::boolean[]
) with ordinality as new (topic, type, key, payload, headers, due_at, due_in, idempotency_key, unique_for, replace, n)
order by n
