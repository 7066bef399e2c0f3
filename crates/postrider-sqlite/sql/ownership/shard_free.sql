-- Takes shards of a subscription from their owners: those whose bits are set in ?2.
-- Index: primary key. Locks: the writer lock.
update postrider_shard
set member_id = null,
    epoch = epoch + 1
where subscription_id = ?1
    and (?2 >> shard) & 1
