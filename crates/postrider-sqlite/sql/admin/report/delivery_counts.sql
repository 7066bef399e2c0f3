-- How many rows of a subscription are in each state.
-- Index: primary key; it walks the subscription's rows. Locks: none.
select state, count(*)
from postrider_delivery
where subscription_id = ?1
group by state
