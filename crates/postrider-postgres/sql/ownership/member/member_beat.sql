-- Says that a member lives, and since when the clock has not been set back.
-- Index: primary key; a HOT update. Locks: the row.
update postrider.member
set beat_at = postrider.clock(),
    steady_since = case when postrider.clock() < beat_at then postrider.clock() else steady_since end
where id = $1
