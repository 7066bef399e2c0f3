-- Lets one process after the other look for the tables of an inbox and make them.
-- Index: none. Locks: an advisory lock until the transaction ends.
select pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('postrider inbox', 0))
