-- The members that stand for some subscriptions or hold some of their shards, and whether they live.
-- Index: primary keys. Locks: none.
select part.subscription_id, member.id, member.name, postrider.lives(member.beat_at, member.lease, null)
from (
    select subscription_id, member_id from postrider.standing where subscription_id = any($1)
    union
    select subscription_id, member_id from postrider.shard where subscription_id = any($1)
) as part
join postrider.member as member on member.id = part.member_id
order by part.subscription_id, member.id
