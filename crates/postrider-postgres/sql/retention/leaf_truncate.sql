-- Empties a leaf.
-- Index: none. Locks: the leaf's is held.
truncate postrider.event_leaf
