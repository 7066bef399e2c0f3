-- Makes leased rows pending and due at once, when their owner has changed. No attempt is counted.
-- Index: delivery_leased. Locks: the rows; the subscription's lock is held.
update postrider.delivery
set state = 'pending',
    due_at = postrider.clock()
where subscription_id = $1
    and state = 'leased'
