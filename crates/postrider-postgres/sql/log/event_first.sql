-- The least id above $1 that is there.
-- Index: the leaves' primary keys, one look at each. Locks: none.
select min(id)
from postrider.event
where id > $1
