-- Sends a bare notification.
-- Index: none. Locks: commits that notify wait for each other.
notify postrider_bench
