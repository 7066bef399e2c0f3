-- Writes down how far an adoption has come.
-- Index: primary key. Locks: the row.
insert into postrider.meta (name, value)
values ('adopting', $1)
on conflict (name) do update set value = excluded.value
