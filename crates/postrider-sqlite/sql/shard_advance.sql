-- Moves the positions of a subscription's shards, never back.
-- Index: primary key. Locks: the writer lock.
update postrider_shard
set last_id = ?3
where subscription_id = ?1
    and member_id = ?2
    and last_id < ?3
