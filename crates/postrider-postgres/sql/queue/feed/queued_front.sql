-- Where the queue stands: the least virtual time that is ready to be claimed and has not failed.
-- Index: queued_ready. Locks: none.
select min(first.virtual_time)
from postrider.queue_front as front
cross join lateral (
    select virtual_time
    from postrider.queued
    where subscription_id = $1
        and rank = front.rank
        and state = 'r'
        and finished = 0
        and not leased
        and virtual_time >= front.front
    order by virtual_time, event_id
    limit 1
) as first
where front.subscription_id = $1
