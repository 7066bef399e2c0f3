-- Lanes of a subscription in which rows wait without a reason: the lanes have no head, or fewer heads than they may
-- have where keys have a limit and no order. Index: queued_lane, queued_head; it walks the subscription's lanes. Locks:
-- none.
with most as materialized (
    select case when order_rule = 'key' then 1 else coalesce(per_key, 2147483647) end as heads
    from postrider.subscription
    where id = $1
)
select waiting.key, waiting.late
from postrider.queued as waiting
where waiting.subscription_id = $1
    and waiting.key is not null
    and waiting.parks
    and waiting.state = 'w'
    and not exists (
        select
        from postrider.delivery as held
        where held.subscription_id = $1
            and held.key = waiting.key
            and held.late = waiting.late
            and held.parks
            and (held.state <> 'pending' or held.due_at is not null)
    )
group by waiting.key, waiting.late
having (
    select count(*)
    from postrider.queued as head
    where head.subscription_id = $1
        and head.key = waiting.key
        and head.late = waiting.late
        and head.parks
        and head.state <> 'w'
) < (select heads from most)
limit $2
