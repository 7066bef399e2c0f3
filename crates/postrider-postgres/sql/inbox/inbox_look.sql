-- Says which of the two tables of an inbox are there.
-- Index: the catalog's. Locks: none.
select
    pg_catalog.to_regclass('inbox_event') is not null,
    pg_catalog.to_regclass('inbox_seen') is not null
