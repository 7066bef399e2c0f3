-- How many events of a subscription are leased.
-- Index: postrider_queued_leased, which covers it. Locks: none.
select coalesce(sum(events), 0)
from postrider_queued indexed by postrider_queued_leased
where subscription_id = ?1
    and state = 'leased'
