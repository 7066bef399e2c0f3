-- Drops a slot. What the server has kept for it is gone.
-- Index: none. Locks: the slot.
select pg_drop_replication_slot($1::text::name)
