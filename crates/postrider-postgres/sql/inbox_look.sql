-- Says which of the two tables of an inbox are there.
-- Index: the catalog's. Locks: none.
select
    to_regclass('inbox_event') is not null,
    to_regclass('inbox_seen') is not null
