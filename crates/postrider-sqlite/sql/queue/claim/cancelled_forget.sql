-- Forgets what was cancelled of claims that are gone: one, or all.
-- Index: primary keys. Locks: the writer lock.
delete from postrider_cancelled
where token between ?1 and ?2
    and not exists (select 1 from postrider_claim as claim where claim.token = postrider_cancelled.token)
