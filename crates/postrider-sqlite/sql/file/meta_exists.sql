-- Whether the file holds a store.
-- Index: none; the schema table is small. Locks: none.
select exists (select 1 from sqlite_master where type = 'table' and name = 'postrider_meta')
