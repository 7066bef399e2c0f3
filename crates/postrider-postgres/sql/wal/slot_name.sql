-- The number of the database: slots of all databases share their names.
-- Index: pg_database's own. Locks: none.
select oid::bigint from pg_catalog.pg_database where datname = current_database()
