-- The shards that a member holds.
-- Index: none; the table is small. Locks: the writer lock is held.
select subscription_id, shard
from postrider_shard
where member_id = ?1
