-- The rows that a claim has.
-- Index: postrider_queued_leased, which covers it. Locks: the writer lock is held.
select event_id
from postrider_queued indexed by postrider_queued_leased
where subscription_id = ?1
    and token = ?2
    and state = 'leased'
order by event_id
limit ?3
