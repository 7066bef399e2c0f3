-- How many events a leaf holds, and when the youngest was emitted, whatever its id.
-- Index: none, it reads the whole leaf. Locks: none of its own; the leaf's is held.
select count(*), max(created_at)
from postrider.event_leaf
