-- The rows of one event, of all subscriptions.
-- Index: delivery_event. Locks: none.
select subscription_id, key, late, state, attempts, due_at, parks and state = 'pending' and due_at is null
from postrider.delivery
where event_id = $1
