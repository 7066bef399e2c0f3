-- A queue of PGMQ's.
-- Index: as PGMQ makes them. Locks: none that anybody waits for.
select pgmq.create('bench')
