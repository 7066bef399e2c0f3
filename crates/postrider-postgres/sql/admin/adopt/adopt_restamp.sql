-- Gives the events with ids above $6 and up to $7 the new xids $9 of their classes, whose names $8 are as in
-- adopt_classes. Index: the leaves' primary keys. Locks: the rows; no other session writes meanwhile.
update postrider.event as event
set xid = class.xid
from unnest($8::text[], $9::xid8[]) as class (covered_by, xid)
where event.id > $6
    and event.id <= $7
    and event.xid <> class.xid
    and class.covered_by = coalesce((
        select string_agg(
            case
                when event.id <= $4
                    and ($5::timestamptz is null or event.created_at <= $5)
                    and (
                        pg_visible_in_snapshot(event.xid, place.from_snapshot)
                        or (
                            pg_visible_in_snapshot(event.xid, place.to_snapshot)
                            and event.id <= place.last_id
                        )
                    )
                    then '1'
                else '0'
            end,
            '' order by place.number
        )
        from unnest($1::pg_snapshot[], $2::pg_snapshot[], $3::bigint[])
            with ordinality as place (from_snapshot, to_snapshot, last_id, number)
    ), '')
