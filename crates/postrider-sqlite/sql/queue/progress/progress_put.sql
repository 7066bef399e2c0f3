-- Keeps how far a handler has come.
-- Index: primary key. Locks: the writer lock.
insert into postrider_result (subscription_id, event_id, progress, percent, progress_at)
values (?1, ?2, ?3, ?4, ?5)
on conflict (subscription_id, event_id) do update
set progress = excluded.progress,
    percent = excluded.percent,
    progress_at = excluded.progress_at
