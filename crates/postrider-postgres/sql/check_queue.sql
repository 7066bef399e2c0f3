-- Leased rows under no claim, and lanes that have no head, or several although keys have an order, of each subscription.
-- Index: primary keys; it walks all queues. Locks: none.
select subscription.name, 'has leased row ' || queued.event_id || ' under no claim'
from postrider.queued as queued
join postrider.subscription as subscription on subscription.id = queued.subscription_id
where queued.leased
    and not exists (select from postrider.claim as claim where claim.token = queued.token)
union all
select subscription.name, 'has ' || lane.heads || ' heads in the lane of a key'
from (
    select queued.subscription_id, count(*) filter (where queued.state <> 'w') as heads, queued.key, queued.late
    from postrider.queued as queued
    where queued.key is not null
        and queued.parks
    group by queued.subscription_id, queued.key, queued.late
) as lane
join postrider.subscription as subscription on subscription.id = lane.subscription_id
where case
    when subscription.order_rule = 'none' then lane.heads = 0
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
limit 100
