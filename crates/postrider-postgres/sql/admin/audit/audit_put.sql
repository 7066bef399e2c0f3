-- Writes down who destroyed or skipped what.
-- Index: primary key. Locks: the rows.
select postrider.audit_put($1, $2, $3, $4, $5)
