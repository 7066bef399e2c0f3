-- Keeps others from changing how relays are woken.
-- Index: none. Locks: an advisory lock until the transaction ends.
select pg_advisory_xact_lock('postrider.meta'::regclass::oid::bigint << 32)
