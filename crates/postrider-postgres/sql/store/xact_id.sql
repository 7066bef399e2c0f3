-- The number of this transaction.
-- Index: none. Locks: none.
select pg_current_xact_id()
