-- What a feeder has to know of what was fed before it: where the queue stands, and the newest virtual time.
-- Index: queued_ready from either end. Locks: none.
select
    (
        select min(first.virtual_time)
        from postrider.queue_front as front
        cross join lateral (
            select virtual_time
            from postrider.queued
            where subscription_id = $1
                and rank = front.rank
                and state = 'r'
                and not leased
                and virtual_time >= front.front
            order by virtual_time, event_id
            limit 1
        ) as first
        where front.subscription_id = $1
    ),
    greatest(
        (select max(virtual_time) from postrider.queued where subscription_id = $1),
        (select max(front) from postrider.queue_front where subscription_id = $1)
    )
