-- Makes leased rows pending and due at once, when their owner has changed. No attempt is counted.
-- Index: postrider_delivery_leased. Locks: the writer lock.
update postrider_delivery indexed by postrider_delivery_leased
set state = 'pending',
    due_at = ?2
where subscription_id = ?1
    and state = 'leased'
