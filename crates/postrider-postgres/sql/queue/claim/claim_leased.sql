-- How many events of a subscription are in somebody's hands.
-- Index: none: there are as many claims as are in somebody's hands. Locks: none.
select coalesce(sum(events_left), 0)::bigint
from postrider.claim
where subscription_id = $1
