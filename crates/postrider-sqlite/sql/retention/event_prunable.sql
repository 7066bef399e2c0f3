-- Walks the log for retention: which events are old, and does a delivery or a queued row still need them? Within the
-- reach of a block that is queued nothing goes. Index: primary key, and postrider_delivery_event, the primary key of
-- queued rows and postrider_queued_block for each old row. Locks: none.
select
    event.id,
    event.created_at < ?2 as old,
    exists (select 1 from postrider_delivery as delivery where delivery.event_id = event.id)
    or exists (
        select 1
        from postrider_subscription as subscription
        cross join postrider_queued as queued
        where subscription.mode = 'queue'
            and queued.subscription_id = subscription.id
            and queued.event_id = event.id
    )
    or exists (
        select 1
        from postrider_subscription as subscription
        cross join postrider_queued as block indexed by postrider_queued_block
        where subscription.mode = 'queue'
            and block.subscription_id = subscription.id
            and block.spans is not null
            and block.event_id < event.id
            and block.event_id >= event.id - (
                select widest.reach
                from postrider_queued as widest indexed by postrider_queued_reach
                where widest.subscription_id = subscription.id
                    and widest.spans is not null
                order by widest.reach desc
                limit 1
            )
            and block.last_id >= event.id
    ) as needed,
    coalesce(octet_length(event.payload), 0) as bytes
from postrider_event as event
where event.id > ?1
order by event.id
