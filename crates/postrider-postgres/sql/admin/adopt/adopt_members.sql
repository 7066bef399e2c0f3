-- Forgets everybody who worked on the store where it was before.
-- Index: none. Locks: the rows.
delete from postrider.member
