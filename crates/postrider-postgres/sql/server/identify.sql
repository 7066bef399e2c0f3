-- The store's identity, and whether this server is its home. After a failover or a restore to a point in time it
-- becomes another one here. Index: primary key. Locks: the rows, if it becomes another.
select store_id, is_home from postrider.identify()
