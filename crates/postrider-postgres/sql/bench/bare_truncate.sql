-- Empties the bare table, so that every round finds the same.
-- Index: none. Locks: the bare table, alone.
truncate postrider_bench.event
