-- All queued rows of a subscription, for a check.
-- Index: primary key. Locks: none.
select
    event_id, spans, bytes, rank, virtual_time, tenant, key, late, turn, parks, state, due_at, token, started, finished,
    edited_payload
from postrider_queued
where subscription_id = ?1
order by event_id
