-- The parked lanes of some subscriptions whose heads are the oldest, and how many rows wait in each, the head included.
-- Index: delivery_head, delivery_lane. The sum keeps the planner from walking the primary key in the hope to meet heads
-- early. Locks: none.
select
    head.subscription_id,
    head.key,
    head.event_id,
    head.due_at,
    1 + (
        select count(*)
        from postrider.delivery as waiting
        where waiting.subscription_id = head.subscription_id
            and waiting.key = head.key
            and waiting.late = head.late
            and waiting.parks
            and waiting.state = 'pending'
            and waiting.due_at is null
    )
from unnest($1::bigint[]) as wanted (id)
cross join lateral (
    select delivery.subscription_id, delivery.key, delivery.late, delivery.event_id, delivery.due_at
    from postrider.delivery as delivery
    where delivery.subscription_id = wanted.id
        and delivery.parks
        and (delivery.state <> 'pending' or delivery.due_at is not null)
    order by delivery.event_id + 0
    limit $2
) as head
order by head.event_id
