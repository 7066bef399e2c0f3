-- The log was read up to where a new slot begins.
-- Index: primary key. Locks: the row.
delete from postrider.new_slot where name = $1
