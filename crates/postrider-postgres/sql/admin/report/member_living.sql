-- The names of the members that live.
-- Index: primary key. Locks: none.
select name
from postrider.member
where postrider.lives(beat_at, lease, null)
order by id
