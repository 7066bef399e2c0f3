-- Inserts the row that an emit would, into the table that benchmarks compare with.
-- Index: primary key. Locks: the writer lock.
insert into bare_event (topic, type, key, payload, headers, created_at, due_at)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7)
