-- Emits many events, with ids in the order of the arrays: what feeds an insert feeds it in the order asked for.
-- Ids are drawn by the insert, never in the select list: there they would come before the transaction's number.
-- Index: primary key of the leaf. Locks: none that anybody waits for.
insert into postrider.event (topic, type, key, payload, headers, due_at)
select topic, type, key, payload, headers, coalesce(due_at, postrider.clock() + due_in)
from unnest($1::text[], $2::text[], $3::text[], $4::bytea[], $5::json[], $6::timestamptz[], $7::interval[])
    with ordinality as new (topic, type, key, payload, headers, due_at, due_in, n)
order by n
returning id
