-- Writes something, so that its commit flushes the WAL as far as it has come: a transaction that wrote nothing
-- would not. A message leaves no row behind.
-- Index: none. Locks: none.
select pg_logical_emit_message(true, 'postrider', '')
