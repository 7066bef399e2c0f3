-- How far the write-ahead log has come.
-- Index: none. Locks: none.
select pg_current_wal_insert_lsn()
