-- Lets bare rows be written in silence again.
-- Index: none. Locks: the bare table, alone.
drop trigger wake on postrider_bench.event
