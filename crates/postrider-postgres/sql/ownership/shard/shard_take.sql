-- Gives shards of a subscription to a member: those whose bits are set in $3 and that no member holds, or one of the
-- members $4, whose locks are held. The new epochs fence the former owners. Index: primary key. Locks: the rows.
update postrider.shard
set member_id = $2,
    epoch = epoch + 1
where subscription_id = $1
    and ($3::bigint >> shard) & 1 = 1
    and (member_id is null or member_id = any($4::bigint[]))
returning shard, epoch
