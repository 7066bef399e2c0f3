-- The lanes of a subscription that have a head.
-- Index: delivery_head. Locks: none.
select key, late
from postrider.delivery
where subscription_id = $1
    and parks
    and (state <> 'pending' or due_at is not null)
order by key, late
