-- Waits for transactions that have written or read this leaf, and keeps others from it. The caller has set how long.
-- Index: none. Locks: the leaf, alone; retention's lock is held.
lock table postrider.event_leaf in access exclusive mode
