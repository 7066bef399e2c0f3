-- The names of the members that live.
-- Index: primary key. Locks: none.
select name
from postrider.member
where beat_at + lease > postrider.clock()
order by id
