-- The members that hold shards of a subscription, with what tells whether they live. The columns of the
-- member are null if it has been forgotten.
-- Index: primary keys. Locks: the writer lock is held.
select distinct shard.member_id, member.pid, member.pid_namespace, member.boot_id, member.started, member.beat_at
from postrider_shard as shard
left join postrider_member as member on member.id = shard.member_id
where shard.subscription_id = ?1
    and shard.member_id is not null
