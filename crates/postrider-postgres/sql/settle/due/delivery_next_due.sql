-- How long until the next row is due, of the shards whose bits are set in $2 or of all.
-- Index: delivery_due. Locks: none.
select extract(epoch from due_at - postrider.clock())::double precision
from postrider.delivery
where subscription_id = $1
    and due_at > postrider.clock()
    and ($2::bigint is null or ($2 >> shard) & 1 = 1)
order by due_at, event_id
limit 1
