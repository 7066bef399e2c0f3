-- Keeps events from being written while the log is adopted. Readers go on.
-- Index: none. Locks: the log's table, against writers; it waits for those that run.
lock table postrider.event in share row exclusive mode
