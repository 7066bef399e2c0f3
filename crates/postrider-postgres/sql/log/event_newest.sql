-- The newest event behind $1, up to $2, in one leaf.
-- Index: the leaf's primary key, backwards. Locks: none.
select id, created_at
from postrider.event_leaf
where id > $1 and id <= $2
order by id desc
limit 1
