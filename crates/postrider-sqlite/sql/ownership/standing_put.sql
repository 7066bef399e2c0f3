-- Says that a member wants a part of a subscription's shards.
-- Index: primary key. Locks: the writer lock.
insert into postrider_standing (subscription_id, member_id)
values (?1, ?2)
on conflict do nothing
