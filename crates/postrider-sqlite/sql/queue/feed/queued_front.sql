-- The least virtual time among what is ready and has not failed. The index has it for each rank, of which there are
-- few. Index: postrider_queued_ready, once for each rank. Locks: none.
with recursive rank(level) as (
    values (?2)
    union all
    select level + 1 from rank where level < ?3
)
select min((
    select virtual_time
    from postrider_queued indexed by postrider_queued_ready
    where subscription_id = ?1
        and state = 'ready'
        and finished = 0
        and rank = level
    order by virtual_time
    limit 1
))
from rank
