-- Emits many events, with ids in the order of the arrays: what feeds an insert feeds it in the order asked for.
-- Ids are drawn by the insert, never in the select list: there they would come before the transaction's number.
-- Index: primary key of the leaf. Locks: none that anybody waits for.
insert into postrider.event (topic, type, key, payload, payload_bytes, headers, due_at)
select topic, type, key, payload, payload_bytes, headers, coalesce(due_at, postrider.clock() + due_in)
from unnest(
    $1::text[], $2::text[], $3::text[], $4::json[], $5::bytea[], $6::json[], $7::timestamptz[], $8::interval[]
)
    with ordinality as new (topic, type, key, payload, payload_bytes, headers, due_at, due_in, n)
order by n
returning id
