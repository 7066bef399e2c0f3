-- Whether anything may be claimed.
-- Index: postrider_queued_ready. Locks: none.
select 1
from postrider_queued indexed by postrider_queued_ready
where subscription_id = ?1
    and state = 'ready'
limit 1
