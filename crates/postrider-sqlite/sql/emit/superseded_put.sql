-- Notes that a newer event has taken over the idempotency key of this one.
-- Index: primary key. Locks: the writer lock.
insert into postrider_superseded (event_id)
values (?1)
on conflict do nothing
