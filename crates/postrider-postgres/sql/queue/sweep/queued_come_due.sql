-- Rows whose time has come, from a due time on ($3) before which nothing is known to be left; from the first if that is
-- null. Index: queued_due. Locks: the rows; rows that another transaction has locked are passed over.
select event_id, key, late, parks, due_at
from postrider.queued
where subscription_id = $1
    and state = 'd'
    and due_at >= coalesce($3::timestamptz, '-infinity')
    and due_at <= postrider.clock()
order by due_at
limit $2
for update skip locked
