-- How many events of some subscriptions wait in their queues, and how many are leased. Index: primary key; it walks the
-- subscriptions' rows. Locks: none.
select subscription_id,
    coalesce(sum(events) filter (where not leased), 0)::bigint,
    coalesce(sum(events) filter (where leased), 0)::bigint
from postrider.queued
where subscription_id = any($1)
group by subscription_id
