-- Notes an event as handled, if it was not yet.
-- Index: primary key. Locks: the writer lock.
insert into postrider_inbox (receiver, dedup_id)
values (?1, ?2)
on conflict do nothing
