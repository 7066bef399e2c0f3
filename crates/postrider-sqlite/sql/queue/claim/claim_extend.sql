-- Makes the lease of a claim last from now on.
-- Index: primary key. Locks: the writer lock.
update postrider_claim
set until_us = ?2 + lease_us
where token = ?1
