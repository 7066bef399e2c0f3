-- Makes producers stop waking relays. Index: none. Locks: the log's table against all sessions, which it waits for and
-- which wait for it; the leaves not.
drop trigger if exists wake on postrider.event
