-- Removes one event, unless a delivery or a queued row refers to it or a position lies before it.
-- Index: primary keys, postrider_delivery_event, postrider_queued_block. Locks: the writer lock.
delete from postrider_event
where id = ?1
    and id <= ?2
    and not exists (select 1 from postrider_delivery as delivery where delivery.event_id = ?1)
    and not exists (
        select 1
        from postrider_subscription as subscription
        cross join postrider_queued as queued
        where subscription.mode = 'queue'
            and queued.subscription_id = subscription.id
            and queued.event_id = ?1
    )
    and not exists (
        select 1
        from postrider_subscription as subscription
        cross join postrider_queued as block indexed by postrider_queued_block
        where subscription.mode = 'queue'
            and block.subscription_id = subscription.id
            and block.spans is not null
            and block.event_id < ?1
            and block.event_id >= ?1 - (
                select widest.reach
                from postrider_queued as widest indexed by postrider_queued_reach
                where widest.subscription_id = subscription.id
                    and widest.spans is not null
                order by widest.reach desc
                limit 1
            )
            and block.last_id >= ?1
    )
