-- How long until the next row is due, in seconds; looked for from a due time on ($2), or from the first if that is
-- null. Index: queued_due. Locks: none.
select greatest(extract(epoch from due_at - postrider.clock()), 0)::float8
from postrider.queued
where subscription_id = $1
    and state = 'd'
    and due_at >= coalesce($2::timestamptz, '-infinity')
order by due_at
limit 1
