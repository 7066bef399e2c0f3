-- Lets either retention run or positions appear.
-- Index: none. Locks: an advisory lock until the transaction ends.
select pg_advisory_xact_lock('postrider.position_table'::regclass::oid::bigint << 32)
