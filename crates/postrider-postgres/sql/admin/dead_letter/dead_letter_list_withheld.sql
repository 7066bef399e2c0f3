-- As dead_letter_list, for those who may not read payloads.
-- Index: delivery_dead. Locks: none.
select
    delivery.subscription_id,
    subscription.name,
    delivery.event_id,
    delivery.parks,
    delivery.died_at,
    delivery.attempts,
    null::json,
    substring(null::bytea from 1 for $6),
    0
from postrider.delivery as delivery
join postrider.subscription as subscription on subscription.id = delivery.subscription_id
where delivery.state = 'dead'
    and delivery.subscription_id between $1 and $2
    and delivery.event_id between $3 and $4
order by delivery.event_id, subscription.name collate "C"
limit $5
