-- How long until the next row is due, in seconds.
-- Index: queued_due. Locks: none.
select greatest(extract(epoch from due_at - postrider.clock()), 0)::float8
from postrider.queued
where subscription_id = $1
    and state = 'd'
order by due_at
limit 1
