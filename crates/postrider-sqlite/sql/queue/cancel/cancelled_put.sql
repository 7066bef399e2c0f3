-- Notes that an event in the hands of a worker was cancelled.
-- Index: primary key. Locks: the writer lock.
insert into postrider_cancelled (token, event_id)
values (?1, ?2)
on conflict do nothing
