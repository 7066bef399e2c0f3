-- The subscriptions of which a member holds shards.
-- Index: none; the table is small. Locks: the writer lock is held.
select distinct subscription_id
from postrider_shard
where member_id = ?1
