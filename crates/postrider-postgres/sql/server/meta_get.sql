-- One fact about the store.
-- Index: primary key. Locks: none.
select value
from postrider.meta
where name = $1
