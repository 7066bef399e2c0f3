-- Rows of queues that stand for events of a leaf.
-- Index: the leaf's primary key; it walks all queues. Locks: none.
select subscription.name, queued.subscription_id, queued.event_id, queued.leased, queued.spans
from postrider.queued as queued
join postrider.subscription as subscription on subscription.id = queued.subscription_id
where queued.last_id >= (select min(id) from postrider.event_leaf)
    and queued.event_id <= (select max(id) from postrider.event_leaf)
limit $1
