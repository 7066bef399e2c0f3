-- One dead letter.
-- Index: primary keys. Locks: none.
select
    delivery.subscription_id,
    subscription.name,
    delivery.event_id,
    delivery.parks,
    delivery.died_at,
    delivery.attempts,
    delivery.edited_payload,
    octet_length(delivery.edited_payload),
    subscription.mode
from postrider_delivery as delivery
join postrider_subscription as subscription on subscription.id = delivery.subscription_id
where delivery.subscription_id = ?1
    and delivery.event_id = ?2
    and delivery.state = 'dead'
