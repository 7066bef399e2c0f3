-- Makes the leases of claims last from now on.
-- Index: primary key. Locks: the claims.
update postrider.claim
set until = postrider.clock() + lease
where token = any($1)
returning token, cancelled
