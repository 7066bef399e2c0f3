-- The newest virtual time of each tenant that has rows.
-- Index: primary key; it walks the subscription's rows. Locks: none.
select tenant, max(virtual_time)
from postrider.queued
where subscription_id = $1
    and tenant is not null
group by tenant
