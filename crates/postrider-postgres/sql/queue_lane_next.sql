-- Gives lanes that have no head one: the first row that waits. Nobody who claims looks below the front.
-- Index: queued_lane, delivery_head, then primary keys. Locks: the promoted rows; the buckets of the lanes are held.
update postrider.queued as promoted
set state = 'r',
    virtual_time = greatest(
        promoted.virtual_time,
        (select front from postrider.queue_front as front where front.subscription_id = $1 and front.rank = promoted.rank)
    )
from unnest($2::text[], $3::boolean[]) as lane (key, late)
cross join lateral (
    select event_id
    from postrider.queued as waiting
    where waiting.subscription_id = $1
        and waiting.key = lane.key
        and waiting.late = lane.late
        and waiting.parks
        and waiting.state = 'w'
    order by waiting.turn, waiting.event_id
    limit 1
) as first
where promoted.subscription_id = $1
    and promoted.event_id = first.event_id
    and promoted.state = 'w'
    and not exists (
        select
        from postrider.queued as head
        where head.subscription_id = $1
            and head.key = lane.key
            and head.late = lane.late
            and head.parks
            and head.state <> 'w'
    )
    and not exists (
        select
        from postrider.delivery as held
        where held.subscription_id = $1
            and held.key = lane.key
            and held.late = lane.late
            and held.parks
            and (held.state <> 'pending' or held.due_at is not null)
    )
returning promoted.rank, promoted.virtual_time
