-- Dead letters, oldest event first, with the first $6 bytes of edited payloads. A range of subscriptions and of events is one or all of them.
-- Index: delivery_dead. Locks: none.
select
    delivery.subscription_id,
    subscription.name,
    delivery.event_id,
    delivery.parks,
    delivery.died_at,
    delivery.attempts,
    substring(delivery.edited_payload from 1 for $6),
    octet_length(delivery.edited_payload)
from postrider.delivery as delivery
join postrider.subscription as subscription on subscription.id = delivery.subscription_id
where delivery.state = 'dead'
    and delivery.subscription_id between $1 and $2
    and delivery.event_id between $3 and $4
order by delivery.event_id, subscription.name collate "C"
limit $5
