-- A row that is not leased. Index: primary key. Locks: the row.
select event_id
from postrider.queued
where subscription_id = $1
    and event_id = $2
    and not leased
for update
