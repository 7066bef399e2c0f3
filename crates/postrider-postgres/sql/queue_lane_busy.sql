-- Those of some lanes in which somebody is.
-- Index: queued_lane, delivery_head. Locks: none.
select lane.key, lane.late
from unnest($2::text[], $3::boolean[]) as lane (key, late)
cross join lateral (
    (
        select
        from postrider.queued
        where subscription_id = $1
            and key = lane.key
            and late = lane.late
            and parks
        limit 1
    )
    union all
    (
        select
        from postrider.delivery
        where subscription_id = $1
            and key = lane.key
            and late = lane.late
            and parks
            and (state <> 'pending' or due_at is not null)
        limit 1
    )
    limit 1
) as somebody
