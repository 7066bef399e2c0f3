-- Gives the events of every class its new xid.
-- Index: none, it reads the whole log. Locks: the rows; nobody writes.
update postrider.event as event
set xid = class.xid
from pg_temp.postrider_class as classed
join unnest($1::text[], $2::xid8[]) as class (covered_by, xid) on class.covered_by = classed.covered_by
where event.id = classed.id
    and event.xid <> class.xid
