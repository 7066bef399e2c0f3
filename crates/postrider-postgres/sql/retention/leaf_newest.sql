-- When the last event of a leaf was emitted.
-- Index: the leaf's primary key, backwards. Locks: none.
select created_at
from postrider.event_leaf
order by id desc
limit 1
