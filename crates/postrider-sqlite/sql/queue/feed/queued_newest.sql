-- The largest virtual time of a subscription.
-- Index: primary key; it walks the subscription's rows, once for each feeder. Locks: none.
select max(virtual_time)
from postrider_queued
where subscription_id = ?1
