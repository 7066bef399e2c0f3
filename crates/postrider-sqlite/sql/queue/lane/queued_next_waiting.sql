-- The first lane behind (key, late) in which a queued row waits: one step of a walk over lanes that touches one row of
-- each, however many wait in it.
-- Index: postrider_queued_lane. Locks: the writer lock is held.
select key, late
from postrider_queued indexed by postrider_queued_lane
where subscription_id = ?1
    and state = 'waiting'
    and (key, late) > (?2, ?3)
order by key, late
limit 1
