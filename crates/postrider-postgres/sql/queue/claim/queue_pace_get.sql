-- How long ago the next event might have begun, in seconds; less than nothing if its time is still to come.
-- Index: primary key. Locks: none; the claim's lock is held.
select extract(epoch from postrider.clock() - free_at)::float8
from postrider.queue_pace
where subscription_id = $1
