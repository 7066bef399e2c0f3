-- Says how many of the two tables of an inbox are there.
-- Index: none; a schema is short. Locks: none.
select count(*)
from sqlite_schema
where type = 'table' and name in (?1, ?2)
