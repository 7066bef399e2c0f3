-- Counts the events behind an id, but no further than a limit, since counting walks the table.
-- Index: primary key. Locks: none.
select count(*)
from (
    select 1
    from postrider_event
    where id > ?1 and id < ?2
    limit ?3
)
