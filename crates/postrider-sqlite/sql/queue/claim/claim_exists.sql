-- Whether a claim is there.
-- Index: primary key. Locks: none.
select 1
from postrider_claim
where token = ?1
