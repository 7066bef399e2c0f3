-- Notes which places in the log cover each event, one digit a place. Places: windows $1 to $2, read up to $3. Events with
-- ids above $4, or from after $5, were written on this server and are covered by none.
-- Index: none, it reads the whole log. Locks: none; nobody writes.
insert into pg_temp.postrider_class (id, covered_by)
select
    event.id,
    coalesce((
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
