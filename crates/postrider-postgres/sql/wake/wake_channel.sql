-- The name under which wakes of this store are sent.
-- Index: none. Locks: none.
select concat('postrider_', 'postrider.event'::regclass::oid)
