-- Keeps what handlers want to be kept of their work.
-- Index: primary key. Locks: the rows.
insert into postrider.result (subscription_id, event_id, result, at)
select $1, event_id, result, postrider.clock()
from unnest($2::bigint[], $3::text[]) as said (event_id, result)
on conflict (subscription_id, event_id) do update
set result = excluded.result,
    at = excluded.at
