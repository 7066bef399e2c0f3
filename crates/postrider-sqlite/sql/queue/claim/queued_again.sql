-- Rows that may be claimed and have failed before, in order. Stepped until the claim is full.
-- Index: postrider_queued_again, then the primary key. Locks: the writer lock is held.
select
    event_id, spans, bytes, rank, virtual_time, tenant, key, late, turn, parks, state, due_at, token, started, finished,
    edited_payload
from postrider_queued indexed by postrider_queued_again
where subscription_id = ?1
    and state = 'ready'
    and finished > 0
order by rank, virtual_time, event_id
