-- Whether a member is known.
-- Index: primary key. Locks: none.
select 1
from postrider_member
where id = ?1
