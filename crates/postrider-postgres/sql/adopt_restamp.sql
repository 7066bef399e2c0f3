-- Gives the events of every class, as `adopt_classes` names them by its first five parameters, their new xid.
-- Index: none, it reads the whole log. Locks: the rows; nobody writes.
update postrider.event as restamped
set xid = class.xid
from (
    select
        event.id,
        event.xid,
        (
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
        ) as covered_by
    from postrider.event as event
) as classed
join unnest($6::text[], $7::xid8[]) as class (covered_by, xid) on class.covered_by = coalesce(classed.covered_by, '')
where restamped.id = classed.id
    and (restamped.id >> 34) & 15 = (classed.id >> 34) & 15
    and classed.xid <> class.xid
