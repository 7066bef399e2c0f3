-- Forgets those of some claims that have nothing left.
-- Index: primary key. Locks: the claims.
delete from postrider.claim
where token = any($1)
    and rows_left <= 0
