-- Forgets claims of which no row is left: one, or all of a subscription.
-- Index: primary key, postrider_queued_leased. Locks: the writer lock.
delete from postrider_claim
where subscription_id = ?1
    and token between ?2 and ?3
    and not exists (
        select 1
        from postrider_queued as queued indexed by postrider_queued_leased
        where queued.subscription_id = ?1
            and queued.token = postrider_claim.token
            and queued.state = 'leased'
    )
