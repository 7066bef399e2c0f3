-- Rows whose events are gone.
-- Index: primary keys. Locks: none.
select delivery.event_id, subscription.name
from postrider_delivery as delivery
left join postrider_subscription as subscription on subscription.id = delivery.subscription_id
where not exists (select 1 from postrider_event as event where event.id = delivery.event_id)
limit 100
