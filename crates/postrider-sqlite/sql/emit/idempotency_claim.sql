-- Claims an idempotency key; changes nothing if it is taken. It comes first, so that the transaction begins
-- with a write.
-- Index: primary key. Locks: the writer lock.
insert into postrider_idempotency (key)
values (?1)
on conflict do nothing
