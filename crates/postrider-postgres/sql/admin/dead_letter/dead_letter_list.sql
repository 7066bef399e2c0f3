-- Dead letters, oldest event first, with edited payloads, or with the first $6 characters of them as bytes. A range of
-- subscriptions and of events is one or all of them. Index: delivery_dead. Locks: none.
select
    delivery.subscription_id,
    subscription.name,
    delivery.event_id,
    delivery.parks,
    delivery.died_at,
    delivery.attempts,
    case when $6 >= 1048576 then delivery.edited_payload end,
    case
        when $6 >= 1048576 then delivery.edited_payload_bytes
        else coalesce(
            substring(delivery.edited_payload_bytes from 1 for $6),
            convert_to(substr(delivery.edited_payload::text, 1, $6), 'UTF8')
        )
    end,
    coalesce(octet_length(delivery.edited_payload_bytes), octet_length(delivery.edited_payload::text))
from postrider.delivery as delivery
join postrider.subscription as subscription on subscription.id = delivery.subscription_id
where delivery.state = 'dead'
    and delivery.subscription_id between $1 and $2
    and delivery.event_id between $3 and $4
order by delivery.event_id, subscription.name collate "C"
limit $5
