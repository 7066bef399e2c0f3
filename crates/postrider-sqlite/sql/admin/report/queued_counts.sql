-- How many events of a subscription are queued and not leased, and how many are leased.
-- Index: primary key; it walks the subscription's rows. Locks: none.
select
    coalesce(sum(events) filter (where state <> 'leased'), 0),
    coalesce(sum(events) filter (where state = 'leased'), 0)
from postrider_queued
where subscription_id = ?1
