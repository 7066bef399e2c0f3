-- Notes an event as handled, if it was not yet. Waits for another transaction that is about to.
-- Index: primary key. Locks: the new row.
insert into postrider_inbox (receiver, dedup_id)
values ($1, $2)
on conflict do nothing
returning true
