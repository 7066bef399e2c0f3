-- Rows whose events are gone.
-- Index: primary keys, of all leaves. Locks: none.
select delivery.event_id, subscription.name
from postrider.delivery as delivery
join postrider.subscription as subscription on subscription.id = delivery.subscription_id
where not exists (
    select
    from postrider.event as event
    where event.id = delivery.event_id
)
    and not exists (
        select
        from postrider.kept_event as kept
        where kept.id = delivery.event_id
    )
order by delivery.event_id
limit 100
