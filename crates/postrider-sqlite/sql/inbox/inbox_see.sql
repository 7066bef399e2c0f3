-- Notes the id of an event that is delivered into an inbox, if it was not seen yet.
-- Index: primary key. Locks: the writer lock.
insert into inbox_seen (dedup_id)
values (?1)
on conflict do nothing
