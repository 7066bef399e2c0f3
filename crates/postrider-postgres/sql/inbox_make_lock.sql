-- Lets one process after the other look for the tables of an inbox and make them.
-- Index: none. Locks: an advisory lock until the transaction ends.
select pg_advisory_xact_lock(hashtextextended('postrider inbox', 0))
