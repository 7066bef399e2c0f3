-- Waits for bare notifications.
-- Index: none. Locks: none.
listen postrider_bare
