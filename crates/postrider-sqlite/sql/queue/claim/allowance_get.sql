-- What the rate of a queue still allowed, and when.
-- Index: primary key. Locks: none.
select events, since_us
from postrider_allowance
where subscription_id = ?1
