-- Where the next $3 events behind $1 end, up to $2, and how many they are.
-- Index: the leaves' primary keys, in their order. Locks: none.
select max(id), count(*)
from (
    select id
    from postrider.event
    where id > $1 and id <= $2
    order by id
    limit $3
) as batch
