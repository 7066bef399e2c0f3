-- The classes of the events with ids above $6 and up to $7, each with the least of its ids. A class is named by which
-- places in the log cover it, one digit a place. Places: windows $1 to $2, read up to $3. Events with ids above $4, or
-- from after $5, were written on this server and are covered by none. Index: the leaves' primary keys. Locks: none.
select covered_by, min(id)
from (
    select event.id, coalesce((
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
    ), '') as covered_by
    from postrider.event as event
    where event.id > $6 and event.id <= $7
) as classed
group by covered_by
