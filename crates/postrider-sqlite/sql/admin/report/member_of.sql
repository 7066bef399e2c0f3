-- The members that stand for a subscription or hold some of its shards, with what tells whether they live.
-- Index: primary keys. Locks: none.
select member.id, member.name, member.pid, member.pid_namespace, member.boot_id, member.started, member.beat_at
from postrider_member as member
where member.id in (
    select member_id from postrider_standing where subscription_id = ?1
    union
    select member_id from postrider_shard where subscription_id = ?1
)
order by member.id
