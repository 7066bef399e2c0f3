-- Gives shards of a subscription to a member: those whose bits are set in ?3. The new epochs fence the former owners.
-- Index: primary key. Locks: the writer lock.
update postrider_shard
set member_id = ?2,
    epoch = epoch + 1
where subscription_id = ?1
    and (?3 >> shard) & 1
returning shard, epoch, last_id
