-- Those of some claims that are there, with what was cancelled of them.
-- Index: primary key. Locks: none.
select token, cancelled
from postrider.claim
where token = any($1)
