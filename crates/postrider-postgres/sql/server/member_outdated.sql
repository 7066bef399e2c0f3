-- The members that live and whose programs are of a version before $1. Index: none, there are few. Locks: none, because
-- no member can join meanwhile.
select name
from postrider.member
where postrider.lives(beat_at, lease, null)
    and version < $1
order by id
