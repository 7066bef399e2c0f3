-- Dead letters, oldest event first, with the beginning of edited payloads. A range of subscriptions and of events is
-- one or all of them. Index: postrider_delivery_dead. Locks: none.
select
    delivery.subscription_id,
    subscription.name,
    delivery.event_id,
    delivery.parks,
    delivery.died_at,
    delivery.attempts,
    substr(delivery.edited_payload, 1, 4096),
    octet_length(delivery.edited_payload),
    subscription.mode
from postrider_delivery as delivery indexed by postrider_delivery_dead
join postrider_subscription as subscription on subscription.id = delivery.subscription_id
where delivery.state = 'dead'
    and delivery.subscription_id between ?1 and ?2
    and delivery.event_id between ?3 and ?4
order by delivery.event_id, subscription.name
limit ?5
