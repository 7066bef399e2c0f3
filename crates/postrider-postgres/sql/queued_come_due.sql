-- Rows whose time has come.
-- Index: queued_due. Locks: the rows; those that are in somebody's hands are passed over.
select event_id, key, late, parks
from postrider.queued
where subscription_id = $1
    and state = 'd'
    and due_at <= postrider.clock()
order by due_at
limit $2
for update skip locked
