-- The lanes in which a row waits: a walk that touches one row of each, however many wait in it.
-- Index: delivery_lane. Locks: none.
with recursive lane as (
    (
        select key, late
        from postrider.delivery
        where subscription_id = $1
            and parks
            and state = 'pending'
            and due_at is null
        order by key, late
        limit 1
    )
    union all
    select next.key, next.late
    from lane
    cross join lateral (
        select key, late
        from postrider.delivery
        where subscription_id = $1
            and parks
            and state = 'pending'
            and due_at is null
            and (key, late) > (lane.key, lane.late)
        order by key, late
        limit 1
    ) as next
)
select key, late
from lane
