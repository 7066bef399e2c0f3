-- How many schedules there are.
-- Index: any. Locks: none; the table's lock is held.
select count(*)
from postrider.schedule
