-- Makes dead letters of the single events of rows that are ours. What holds its lane parks it.
-- Index: primary keys. Locks: the rows, which are ours already.
with gone as (
    delete from postrider.queued as queued
    where queued.subscription_id = $1
        and queued.event_id = any($2)
    returning queued.*
)
insert into postrider.delivery
    (subscription_id, event_id, shard, key, late, turn, parks, state, attempts, died_at, edited_payload,
    edited_payload_bytes)
select gone.subscription_id, gone.event_id, said.shard, gone.key, gone.late, gone.turn, gone.parks and $4, 'dead',
    greatest(gone.started, 1), postrider.clock(), gone.edited_payload, gone.edited_payload_bytes
from gone
join unnest($2::bigint[], $3::smallint[]) as said (event_id, shard) on said.event_id = gone.event_id
on conflict (subscription_id, event_id) do nothing
