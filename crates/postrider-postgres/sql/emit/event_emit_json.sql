-- Emits many events of which some have an idempotency key, one after the other, for clients that can bind no arrays but
-- those of payloads: the rest comes as JSON. Index: primary keys of the idempotency key and of the leaf. Locks: waits
-- for a transaction that emits with the same key.
select postrider.event_emit(
    topic => topic,
    type => type,
    key => key,
    payload => case when is_json then pg_catalog.convert_from(payload, 'UTF8')::json end,
    payload_bytes => case when not is_json then payload end,
    headers => headers,
    due_at => due_at,
    due_in => due_in,
    idempotency_key => idempotency_key,
    unique_for => unique_for,
    replace => replace
)
from rows from (
    pg_catalog.json_to_recordset($1::json) as (
        topic text,
        type text,
        key text,
        headers json,
        due_at timestamptz,
        due_in interval,
        idempotency_key text,
        unique_for interval,
        replace boolean,
        is_json boolean
    ),
    pg_catalog.unnest($2::bytea[])
) with ordinality as new (
    topic, type, key, headers, due_at, due_in, idempotency_key, unique_for, replace, is_json, payload, n
)
order by n
