-- Lets heads wait that a lower limit of keys has no room for; what is leased comes first.
-- Index: postrider_queued_head; it walks the heads of all lanes. Locks: the writer lock.
update postrider_queued
set state = 'waiting'
where subscription_id = ?1
    and event_id in (
        select event_id
        from (
            select event_id, state,
                row_number() over (partition by key, late order by state <> 'leased', turn, event_id) as place
            from postrider_queued indexed by postrider_queued_head
            where subscription_id = ?1
                and parks = 1
                and state <> 'waiting'
        )
        where state = 'ready'
            and place > ?2
    )
