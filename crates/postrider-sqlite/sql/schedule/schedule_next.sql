-- When the first schedule is due.
-- Index: schedule_next, its first entry. Locks: none.
select min(next_at)
from postrider_schedule
where paused_at is null
