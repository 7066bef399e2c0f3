-- The classes of events, each with the least of its ids.
-- Index: none, it reads all that was noted. Locks: none.
select covered_by, min(id)
from pg_temp.postrider_class
group by covered_by
