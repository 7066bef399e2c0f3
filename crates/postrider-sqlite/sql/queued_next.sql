-- The first row that waits in a lane.
-- Index: postrider_queued_lane, which covers it. Locks: the writer lock is held.
select event_id
from postrider_queued indexed by postrider_queued_lane
where subscription_id = ?1
    and key = ?2
    and late = ?3
    and state = 'waiting'
order by turn, event_id
limit 1
