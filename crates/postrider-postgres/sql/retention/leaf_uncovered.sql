-- The first event of a leaf behind id $1 that a position does not cover. $3 is null where the position stands at a
-- moment and not within a window.
-- Index: the leaf's primary key, in its order. Locks: none.
select created_at
from postrider.event_leaf
where id > $1
    and (
        not pg_visible_in_snapshot(xid, $2)
        or coalesce(id > $4 and not pg_visible_in_snapshot(xid, $3::pg_snapshot), false)
    )
order by id
limit 1
