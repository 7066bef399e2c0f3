-- Registers a process.
-- Index: primary key. Locks: none that anybody waits for.
insert into postrider.member (name, joined_at, beat_at, lease)
values ($1, postrider.clock(), postrider.clock(), $2)
returning id
