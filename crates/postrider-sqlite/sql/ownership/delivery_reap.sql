-- Makes leased rows of the shards whose bits are set in ?2 pending and due at once, when their owner has changed. No
-- attempt is counted.
-- Index: postrider_delivery_leased. Locks: the writer lock.
update postrider_delivery indexed by postrider_delivery_leased
set state = 'pending',
    due_at = ?3
where subscription_id = ?1
    and state = 'leased'
    and (?2 >> shard) & 1
