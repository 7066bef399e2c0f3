-- How many rows of some subscriptions are pending, leased and dead, and how many head a lane.
-- Index: primary key; it walks the subscriptions' rows. Locks: none.
select
    subscription_id,
    count(*) filter (where state = 'pending'),
    count(*) filter (where state = 'leased'),
    count(*) filter (where state = 'dead'),
    count(*) filter (where parks and (state <> 'pending' or due_at is not null))
from postrider.delivery
where subscription_id = any($1)
group by subscription_id
