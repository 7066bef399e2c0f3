-- Says that a member wants a part of a subscription's shards. Said again it writes nothing, and neither does a member
-- that is just being forgotten, nor one of a subscription that is just being deleted. Index: primary keys. Locks:
-- shared ones that keep both from going until it is written, the first time.
insert into postrider.standing (subscription_id, member_id)
select found.subscription_id, found.member_id
from (
    select subscription.id as subscription_id, member.id as member_id
    from postrider.subscription as subscription
    cross join postrider.member as member
    where subscription.id = $1
        and member.id = $2
        and not exists (select from postrider.standing where subscription_id = $1 and member_id = $2)
    for key share
) as found
on conflict do nothing
