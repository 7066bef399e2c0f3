-- The events of one leaf that lie in some stretches of ids.
-- Index: the leaf's primary key, once for each stretch. Locks: none.
select event.id, event.topic, event.type, event.key, case when event.size <= 1048580 then event.payload end,
    case when event.size <= 1048580 then event.payload_bytes end, event.headers, event.created_at, event.due_at, event.lengths,
    event.size
from unnest($1::bigint[], $2::bigint[]) as span (first, last)
join postrider.event_cut as event on event.id between span.first and span.last
