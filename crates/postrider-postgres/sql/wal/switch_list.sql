-- How often readers of each slot have changed between it and the table, and where they read at last.
-- Index: none. Locks: none.
select slot, reading, switches, at from postrider.switch order by slot
