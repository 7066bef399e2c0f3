-- Empties the table whose positions were taken over.
-- Index: none. Locks: the table's is held.
truncate postrider.position_old
