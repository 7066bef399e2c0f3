-- Waits for a migration of this schema that runs, and lets none begin until the transaction ends.
-- Index: none. Locks: the advisory lock of migrations, shared.
select pg_advisory_xact_lock_shared(1347375955, hashtext($1::text))
