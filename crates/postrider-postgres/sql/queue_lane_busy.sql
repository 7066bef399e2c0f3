-- Those of some lanes in which somebody is.
-- Index: queued_lane, delivery_head. Locks: none.
select lane.key, lane.late
from unnest($2::text[], $3::boolean[]) as lane (key, late)
where exists (
        select
        from postrider.queued as queued
        where queued.subscription_id = $1
            and queued.key = lane.key
            and queued.late = lane.late
            and queued.parks
    )
    or exists (
        select
        from postrider.delivery as held
        where held.subscription_id = $1
            and held.key = lane.key
            and held.late = lane.late
            and held.parks
            and (held.state <> 'pending' or held.due_at is not null)
    )
