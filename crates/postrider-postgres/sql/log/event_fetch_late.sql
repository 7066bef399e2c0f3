-- What late transactions wrote: rows of the xids $3 behind $1 up to $2, in the order of ids. Those of one transaction
-- come from the index in that order, so that no more rows are looked at than are asked for, of each. Payloads as in
-- event_fetch.
-- Index: the leaf's one on (xid, id), which is not there by default. Locks: none.
select late.xid, late.id, late.topic, late.type, late.key, case when late.size <= 32768 then late.payload end,
    case when late.size <= 32768 then late.payload_bytes end, late.headers, late.created_at, late.due_at,
    late.lengths, late.size
from unnest($3::xid8[]) as straggler (xid)
cross join lateral (
    select *
    from postrider.event_cut as event
    where event.xid = straggler.xid
        and event.id > $1
        and event.id <= $2
    order by event.id
    limit $4
) as late
order by late.id
limit $4
