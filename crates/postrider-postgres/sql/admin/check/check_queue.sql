-- Leased rows under no claim, lanes that have no head, or several although keys have an order, and such in which a row
-- waits that should have come before the head, of each subscription. Index: primary keys; it walks all queues. Locks:
-- none.
with lane as materialized (
    select subscription.name, subscription.order_rule, queued.subscription_id, queued.key, queued.late,
        count(*) filter (where queued.state <> 'w') as heads,
        min(queued.turn) filter (where queued.state = 'w') < max(queued.turn) filter (where queued.state <> 'w') as overtaken
    from postrider.queued as queued
    join postrider.subscription as subscription on subscription.id = queued.subscription_id
    where queued.key is not null
        and queued.parks
    group by subscription.name, subscription.order_rule, queued.subscription_id, queued.key, queued.late
)
select subscription.name, 'has leased row ' || queued.event_id || ' under no claim'
from postrider.queued as queued
join postrider.subscription as subscription on subscription.id = queued.subscription_id
where queued.leased
    and not exists (select from postrider.claim as claim where claim.token = queued.token)
union all
select lane.name, 'has ' || lane.heads || ' heads in the lane of a key'
from lane
where case
    when lane.order_rule = 'none' then lane.heads = 0
    else lane.heads + (
        select count(*)
        from postrider.delivery as held
        where held.subscription_id = lane.subscription_id
            and held.key = lane.key
            and held.late = lane.late
            and held.parks
            and held.state <> 'pending'
    ) <> 1
end
union all
select lane.name, 'has a row that waits before the head of its lane'
from lane
where lane.overtaken
    and lane.order_rule = 'key'
    and not lane.late
limit 100
