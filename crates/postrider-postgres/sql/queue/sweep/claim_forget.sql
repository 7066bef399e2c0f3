-- Forgets claims.
-- Index: primary key. Locks: the claims.
delete from postrider.claim
where token = any($1)
