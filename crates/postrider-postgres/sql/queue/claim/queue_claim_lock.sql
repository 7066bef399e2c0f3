-- Lets those who claim from a limited queue do it one after the other.
-- Index: none. Locks: an advisory lock until the transaction ends.
select pg_advisory_xact_lock(
    (('postrider.claim'::regclass::oid::bigint + $1::bigint * 7919) % 2147483647)::integer, 0
)
