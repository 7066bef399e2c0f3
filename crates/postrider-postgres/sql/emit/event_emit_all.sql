-- Emits many events of which some have an idempotency key, one after the other. Index: primary keys of the idempotency
-- key and of the leaf. Locks: waits for a transaction that emits with the same key.
select postrider.event_emit(
    topic => topic,
    type => type,
    key => key,
    payload => payload,
    payload_bytes => payload_bytes,
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
    $4::json[],
    $5::bytea[],
    $6::json[],
    $7::timestamptz[],
    $8::interval[],
    $9::text[],
    $10::interval[],
    $11::boolean[]
) with ordinality as new (
    topic, type, key, payload, payload_bytes, headers, due_at, due_in, idempotency_key, unique_for, replace, n
)
order by n
