-- One fact about the store.
-- Index: primary key. Locks: none.
select value
from postrider_meta
where name = ?1
