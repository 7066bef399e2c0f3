-- How many schedules there are.
-- Index: any. Locks: none.
select count(*)
from postrider_schedule
