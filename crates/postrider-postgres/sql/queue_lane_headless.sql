-- Lanes of a subscription in which rows wait for nobody.
-- Index: queued_lane; it walks the subscription's lanes. Locks: none.
select waiting.key, waiting.late
from postrider.queued as waiting
where waiting.subscription_id = $1
    and waiting.key is not null
    and waiting.parks
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
having bool_and(waiting.state = 'w')
limit $2
