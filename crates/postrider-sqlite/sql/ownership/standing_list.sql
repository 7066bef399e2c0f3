-- The members that want a part of a subscription's shards, with what tells whether they live.
-- Index: primary keys. Locks: none.
select standing.member_id, member.pid, member.pid_namespace, member.boot_id, member.started, member.beat_at
from postrider_standing as standing
join postrider_member as member on member.id = standing.member_id
where standing.subscription_id = ?1
order by standing.member_id
