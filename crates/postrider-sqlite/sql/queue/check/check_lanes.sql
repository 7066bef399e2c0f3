-- Lanes of a queue that have no head, or several although keys have an order (?2). A head is a queued row that does not
-- wait, or a dead letter that holds its key. Index: none; it walks all rows that park. Locks: none.
select key, sum(head)
from (
    select key, late, state <> 'waiting' as head
    from postrider_queued
    where subscription_id = ?1
        and parks = 1
    union all
    select key, late, 1
    from postrider_delivery
    where subscription_id = ?1
        and parks = 1
)
group by key, late
having sum(head) = 0
    or (?2 and sum(head) > 1)
limit 100
