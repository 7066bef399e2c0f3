-- How many events were kept after their leaf was emptied, but no further than a limit, and the oldest of them.
-- Index: primary key. Locks: none.
select count(*), min(created_at)
from (
    select created_at
    from postrider.kept_event
    order by id
    limit $1
) as counted
