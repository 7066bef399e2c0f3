-- Waits for those who write events that wait, and keeps others from it.
-- Index: none. Locks: the table, against writers.
lock table postrider.waiting_event in share row exclusive mode
