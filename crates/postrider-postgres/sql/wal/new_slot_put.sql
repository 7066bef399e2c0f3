-- Takes note that a slot is about to be made.
-- Index: primary key. Locks: the row.
insert into postrider.new_slot (name) values ($1) on conflict do nothing
