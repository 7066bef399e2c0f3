-- How long until the next row is due.
-- Index: delivery_due. Locks: none.
select extract(epoch from due_at - postrider.clock())::double precision
from postrider.delivery
where subscription_id = $1
    and due_at > postrider.clock()
order by due_at, event_id
limit 1
