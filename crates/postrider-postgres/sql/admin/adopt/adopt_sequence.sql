-- Makes the next id one behind $1.
-- Index: none. Locks: none that last.
select pg_catalog.setval('postrider.event_id_seq'::regclass, $1::bigint)
