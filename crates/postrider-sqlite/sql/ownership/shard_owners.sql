-- The shards of a subscription with their owners and what tells whether they live. The columns of the owner are null
-- if there is none, or if it has been forgotten.
-- Index: primary keys. Locks: none; the writer lock is held when shards are taken.
select shard.shard, shard.member_id, member.pid, member.pid_namespace, member.boot_id, member.started, member.beat_at
from postrider_shard as shard
left join postrider_member as member on member.id = shard.member_id
where shard.subscription_id = ?1
order by shard.shard
