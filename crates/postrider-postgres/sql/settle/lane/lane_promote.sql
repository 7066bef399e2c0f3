-- Gives lanes that have no head one: the first row that waits, due now.
-- Index: delivery_head, delivery_lane, then the primary key. Locks: the promoted rows; the subscription's lock is held.
update postrider.delivery as promoted
set due_at = postrider.clock()
from unnest($2::text[], $3::boolean[]) as lane (key, late)
cross join lateral (
    select event_id
    from postrider.delivery as waiting
    where waiting.subscription_id = $1
        and waiting.key = lane.key
        and waiting.late = lane.late
        and waiting.parks
        and waiting.state = 'pending'
        and waiting.due_at is null
    order by waiting.turn, waiting.event_id
    limit 1
) as first
where promoted.subscription_id = $1
    and promoted.event_id = first.event_id
    and not exists (
        select
        from postrider.delivery as head
        where head.subscription_id = $1
            and head.key = lane.key
            and head.late = lane.late
            and head.parks
            and (head.state <> 'pending' or head.due_at is not null)
    )
