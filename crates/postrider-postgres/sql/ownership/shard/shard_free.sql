-- Takes shards of a subscription whose bits are set in $3 from a member, or from any member. Index: primary key. Locks:
-- the rows; the member's lock is held, or the subscription's.
update postrider.shard
set member_id = null,
    epoch = epoch + 1
where subscription_id = $1
    and ($2::bigint is null or member_id = $2)
    and ($3::bigint >> shard) & 1 = 1
