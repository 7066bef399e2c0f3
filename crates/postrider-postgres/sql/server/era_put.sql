-- Begins an era, unless the server is in one.
-- Index: primary key. Locks: the row.
insert into postrider.era (id, started_at)
values (gen_random_uuid(), pg_postmaster_start_time())
on conflict (current) do update
set id = excluded.id, started_at = excluded.started_at
where era.started_at <> excluded.started_at
