-- Forgets a member.
-- Index: primary key. Locks: the row.
delete from postrider.member
where id = $1
