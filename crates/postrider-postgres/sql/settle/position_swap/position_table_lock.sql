-- Waits for transactions that have written or read positions, and keeps others from it. The caller has set how long.
-- Index: none. Locks: the table, alone; retention's lock is held.
lock table postrider.position_old in access exclusive mode
