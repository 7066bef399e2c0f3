-- How many events of a subscription are leased. Index: none, because the table holds live claims only. Locks: none.
select coalesce(sum(events_left), 0)::bigint
from postrider.claim
where subscription_id = $1
