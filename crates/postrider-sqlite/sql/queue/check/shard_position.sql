-- The least advanced position of a subscription.
-- Index: primary key. Locks: none.
select min(last_id)
from postrider_shard
where subscription_id = ?1
