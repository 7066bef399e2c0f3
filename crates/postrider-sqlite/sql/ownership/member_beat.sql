-- Says that a member lives.
-- Index: primary key. Locks: the writer lock.
update postrider_member
set beat_at = ?2
where id = ?1
