-- Lets one migration of this schema run at a time. The first number is ours, the second the schema's.
-- Index: none. Locks: an advisory lock until the transaction ends.
select pg_advisory_xact_lock(1347375955, hashtext($1::text))
