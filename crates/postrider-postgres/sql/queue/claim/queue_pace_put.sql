-- Notes when the next event may begin.
-- Index: primary key. Locks: the row.
insert into postrider.queue_pace (subscription_id, free_at)
values ($1, postrider.clock() + $2::interval - $3::interval)
on conflict (subscription_id) do update
set free_at = excluded.free_at
