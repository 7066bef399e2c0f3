-- The heads of some lanes, each of a subscription.
-- Index: delivery_head. Locks: none.
select head.subscription_id, head.event_id
from unnest($1::bigint[], $2::text[], $3::boolean[]) as lane (subscription_id, key, late)
join postrider.delivery as head on head.subscription_id = lane.subscription_id
    and head.key = lane.key
    and head.late = lane.late
where head.parks
    and (head.state <> 'pending' or head.due_at is not null)
