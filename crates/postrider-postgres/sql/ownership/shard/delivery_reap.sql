-- Makes leased rows of the shards whose bits are set in $2 pending and due at once, when their owner has changed. No
-- attempt is counted. Index: delivery_leased. Locks: the rows; no other member writes rows of these shards.
update postrider.delivery
set state = 'pending',
    due_at = postrider.clock()
where subscription_id = $1
    and state = 'leased'
    and ($2::bigint >> shard) & 1 = 1
