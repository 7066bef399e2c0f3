-- The largest virtual time of each tenant that has rows.
-- Index: primary key; it walks the subscription's rows, once for each feeder. Locks: none.
select tenant, max(virtual_time)
from postrider_queued
where subscription_id = ?1
    and tenant is not null
group by tenant
