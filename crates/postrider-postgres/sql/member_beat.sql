-- Says that a member lives.
-- Index: primary key; a HOT update. Locks: the row.
update postrider.member
set beat_at = postrider.clock()
where id = $1
