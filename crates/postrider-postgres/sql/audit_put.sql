-- Writes down who destroyed or skipped what.
-- Index: primary key. Locks: the rows.
insert into postrider.audit (at, actor, action, subscription, event_id, detail)
select postrider.clock(), $1, $2, subscription, event_id, $5
from unnest($3::text[], $4::bigint[]) as entry (subscription, event_id)
