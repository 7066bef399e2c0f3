-- Whether a leaf holds an event behind id $1 that a position does not cover. $3 is null where the position stands at a
-- moment and not within a window.
-- Index: the leaf's primary key, if not all of it is looked at. Locks: none.
select exists (
    select
    from postrider.event_leaf
    where id > $1
        and (
            not pg_visible_in_snapshot(xid, $2)
            or coalesce(id > $4 and not pg_visible_in_snapshot(xid, $3::pg_snapshot), false)
        )
)
