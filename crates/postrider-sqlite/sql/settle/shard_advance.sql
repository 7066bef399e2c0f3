-- Moves the positions of a subscription's shards whose bits are set in ?2, never back.
-- Index: primary key. Locks: the writer lock.
update postrider_shard
set last_id = ?3
where subscription_id = ?1
    and (?2 >> shard) & 1
    and last_id < ?3
