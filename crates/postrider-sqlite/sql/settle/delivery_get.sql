-- One row in full.
-- Index: primary key. Locks: none.
select key, late, turn, parks, state, attempts, due_at, waits, edited_payload, shard
from postrider_delivery
where subscription_id = ?1
    and event_id = ?2
