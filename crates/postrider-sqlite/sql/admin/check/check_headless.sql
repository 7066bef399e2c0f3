-- Lanes in which rows wait although there is no head.
-- Index: none; it walks all rows that wait. Locks: none.
select distinct waiting.key, subscription.name
from postrider_delivery as waiting
left join postrider_subscription as subscription on subscription.id = waiting.subscription_id
where waiting.parks = 1
    and waiting.waits = 1
    and not exists (
        select 1
        from postrider_delivery as head
        where head.subscription_id = waiting.subscription_id
            and head.key = waiting.key
            and head.late = waiting.late
            and head.parks = 1
            and head.waits = 0
    )
limit 100
