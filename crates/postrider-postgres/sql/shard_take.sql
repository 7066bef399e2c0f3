-- Gives all shards of a subscription to a member. The new epochs fence whoever held them.
-- Index: primary key. Locks: the rows; the subscription's lock is held.
update postrider.shard
set member_id = $2,
    epoch = epoch + 1
where subscription_id = $1
returning shard, epoch
