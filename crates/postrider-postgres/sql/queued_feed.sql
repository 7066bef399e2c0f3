-- Feeds rows. A delayed one enters its lane when its time has come.
-- Index: each row enters the primary key and one or two others. Locks: the new rows; the subscription's lock is held.
insert into postrider.queued
    (subscription_id, event_id, last_id, virtual_time, turn, due_at, tenant, bytes, events, rank, late, parks, state, key,
    spans)
select $1, event_id, last_id, virtual_time, turn, due_at, tenant, bytes, events, rank, late,
    key is not null and due_at is null,
    case when due_at is not null then 'd' when waits then 'w' else 'r' end,
    key, spans::bigint[]
from unnest(
    $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::timestamptz[], $7::bigint[], $8::integer[], $9::smallint[],
    $10::smallint[], $11::boolean[], $12::boolean[], $13::text[], $14::text[]
) as row (
    event_id, last_id, virtual_time, turn, due_at, tenant, bytes, events, rank, late, waits, key, spans
)
