-- Takes a block apart that is ours: the events that are named stay, each as a row of its own, as the block was or as
-- they are told: ready ('r'), due after a while ('d'), or leased on under the same token ('l'). Index: primary keys.
-- Locks: the row, which is ours already.
with
block as (
    delete from postrider.queued
    where subscription_id = $1
        and event_id = $2
    returning *
),
front as (
    select front
    from postrider.queue_front
    where subscription_id = $1
        and rank = (select rank from block)
)
insert into postrider.queued
    (subscription_id, event_id, last_id, virtual_time, token, turn, due_at, tenant, bytes, started, finished, events, rank,
    late, parks, leased, state)
select $1, part.event_id, part.event_id, greatest(block.virtual_time, (select front from front)), block.token,
    part.event_id, postrider.clock() + part.after, block.tenant, block.bytes / greatest(block.events, 1::smallint),
    case when part.begun then block.started else 0 end, part.finished, 1, block.rank, false, false, part.fate = 'l',
    case when part.fate = 'd' then 'd' else 'r' end
from block
cross join unnest($3::bigint[], $4::text[], $5::interval[], $6::boolean[], $7::integer[])
    as part (event_id, fate, after, begun, finished)
returning rank, virtual_time
