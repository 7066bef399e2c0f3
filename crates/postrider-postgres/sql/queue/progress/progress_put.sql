-- Keeps how far handlers have come.
-- Index: primary key. Locks: the rows.
insert into postrider.result (subscription_id, event_id, progress, percent, progress_at)
select subscription_id, event_id, progress, percent, postrider.clock()
from unnest($1::bigint[], $2::bigint[], $3::text[], $4::smallint[]) as said (subscription_id, event_id, progress, percent)
on conflict (subscription_id, event_id) do update
set progress = excluded.progress,
    percent = excluded.percent,
    progress_at = excluded.progress_at
