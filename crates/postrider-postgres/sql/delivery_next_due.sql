-- How long until the next row is due that is not in the owner's memory; negative if one is due already.
-- Index: delivery_due. Locks: none.
select extract(epoch from due_at - postrider.clock())::double precision
from postrider.delivery
where subscription_id = $1
    and due_at is not null
    and event_id <> all ($2::bigint[])
order by due_at, event_id
limit 1
