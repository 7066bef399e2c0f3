-- Takes the shards of a subscription from a member, or from whoever holds them.
-- Index: primary key. Locks: the rows; the subscription's lock is held.
update postrider.shard
set member_id = null,
    epoch = epoch + 1
where subscription_id = $1
    and ($2::bigint is null or member_id = $2)
