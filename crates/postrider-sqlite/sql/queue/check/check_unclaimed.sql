-- Queued rows that are leased under no claim.
-- Index: postrider_queued_leased, and the primary key of claims. Locks: none.
select queued.event_id
from postrider_queued as queued indexed by postrider_queued_leased
where queued.subscription_id = ?1
    and queued.state = 'leased'
    and not exists (
        select 1
        from postrider_claim as claim
        where claim.token = queued.token
            and claim.subscription_id = ?1
    )
limit 100
