-- Who is first in a lane.
-- Index: queued_head. Locks: none.
select event_id
from postrider.queued
where subscription_id = $1
    and key = $2
    and late = $3
    and parks
    and state <> 'w'
limit 1
