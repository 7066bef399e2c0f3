-- Emits events that come as one JSON text and an array of payloads, with ids in the order of both: for client
-- libraries that can send little else. The text says which payloads are JSON.
-- Index: primary key of the leaf. Locks: none that anybody waits for.
insert into postrider.event (topic, type, key, payload, payload_bytes, headers, due_at)
select topic, type, key, case when is_json then pg_catalog.convert_from(payload, 'UTF8')::json end,
    case when not is_json then payload end, headers, coalesce(due_at, postrider.clock() + due_in)
from rows from (
    pg_catalog.json_to_recordset($1::json)
        as (topic text, type text, key text, headers json, due_at timestamptz, due_in interval, is_json boolean),
    pg_catalog.unnest($2::bytea[])
) with ordinality as new (topic, type, key, headers, due_at, due_in, is_json, payload, n)
order by n
returning id
