-- The greatest id that is there.
-- Index: primary keys, backwards. Locks: none.
select max(id)
from (
    select max(id) as id
    from postrider.event
    union all
    select max(id)
    from postrider.kept_event
) as both_places
