-- Rows that have a due time, soonest first. Stepped until one is not due yet.
-- Index: postrider_queued_due, which covers it. Locks: none.
select event_id, due_at
from postrider_queued indexed by postrider_queued_due
where subscription_id = ?1
    and state = 'due'
order by due_at, event_id
limit ?2
