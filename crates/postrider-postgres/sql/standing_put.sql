-- Says that a member wants a part of a subscription's shards. Said again it writes nothing.
-- Index: primary key. Locks: none that anybody waits for.
insert into postrider.standing (subscription_id, member_id)
select $1, $2
where not exists (select from postrider.standing where subscription_id = $1 and member_id = $2)
on conflict do nothing
