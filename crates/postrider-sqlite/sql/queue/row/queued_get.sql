-- One queued row.
-- Index: primary key. Locks: none.
select
    event_id, spans, bytes, rank, virtual_time, tenant, key, late, turn, parks, state, due_at, token, started, finished,
    edited_payload
from postrider_queued
where subscription_id = ?1
    and event_id = ?2
