-- Of the first $3 events behind $1, up to $2, in one leaf, those that a position does not cover, by topic and type; and
-- how many were looked at and up to which id. $5 is null where the position stands at a moment and not within a window.
-- Index: the leaf's primary key. Locks: none.
select
    topic,
    type,
    count(*),
    max(id),
    count(*) filter (where uncovered),
    min(created_at) filter (where uncovered)
from (
    select
        id,
        left(topic, 256) as topic,
        left(type, 256) as type,
        created_at,
        not pg_visible_in_snapshot(xid, $4)
        or coalesce(id > $6 and not pg_visible_in_snapshot(xid, $5::pg_snapshot), false) as uncovered
    from postrider.event_leaf
    where id > $1 and id <= $2
    order by id
    limit $3
) as looked
group by topic, type
