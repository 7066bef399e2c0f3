-- Lanes in which rows wait although there is no head.
-- Index: delivery_lane, delivery_head; it walks all rows that wait. Locks: none.
select distinct waiting.key, subscription.name
from postrider.delivery as waiting
join postrider.subscription as subscription on subscription.id = waiting.subscription_id
where waiting.parks
    and waiting.state = 'pending'
    and waiting.due_at is null
    and not exists (
        select
        from postrider.delivery as head
        where head.subscription_id = waiting.subscription_id
            and head.key = waiting.key
            and head.late = waiting.late
            and head.parks
            and (head.state <> 'pending' or head.due_at is not null)
    )
limit 100
