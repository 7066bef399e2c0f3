-- The greatest id in the log, in one step down the tree.
-- Index: primary key. Locks: none.
select max(id)
from postrider_event
