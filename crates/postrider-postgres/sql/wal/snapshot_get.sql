-- What this transaction sees.
-- Index: none. Locks: none.
select pg_current_snapshot()
