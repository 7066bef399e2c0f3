-- Makes producers wake nobody.
-- Index: none. Locks: the log's table against everybody, who it waits for and who wait for it; the leaves not.
drop trigger if exists wake on postrider.event
