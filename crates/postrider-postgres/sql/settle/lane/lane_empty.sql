-- Of some lanes those that have no head. Asked when each that could has been given one, so they are empty.
-- Index: delivery_head. Locks: none.
select key, late
from unnest($2::text[], $3::boolean[]) as lane (key, late)
where not exists (
    select
    from postrider.delivery as head
    where head.subscription_id = $1
        and head.key = lane.key
        and head.late = lane.late
        and head.parks
        and (head.state <> 'pending' or head.due_at is not null)
)
