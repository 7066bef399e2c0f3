-- Forgets a member.
-- Index: primary key. Locks: the writer lock.
delete from postrider_member
where id = ?1
