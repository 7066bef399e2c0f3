-- How far an adoption has come that was begun.
-- Index: primary key. Locks: none.
select value
from postrider.meta
where name = 'adopting'
