-- The subscriptions of which a member holds shards.
-- Index: none, it is asked when a process ends. Locks: none.
select distinct subscription_id
from postrider.shard
where member_id = $1
order by subscription_id
