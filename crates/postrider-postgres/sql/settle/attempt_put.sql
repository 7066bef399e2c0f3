-- Records failed attempts under the name of their member; a repeat replaces what it repeats.
-- Index: primary keys. Locks: the rows.
insert into postrider.attempt (subscription_id, event_id, attempt, started_at, took, member, error)
select $1, event_id, attempt, postrider.clock() - ended_ago - took, took,
    coalesce((select name from postrider.member where id = $2), ''), error
from unnest($3::bigint[], $4::integer[], $5::interval[], $6::interval[], $7::text[])
    as record (event_id, attempt, ended_ago, took, error)
on conflict (subscription_id, event_id, attempt) do update
set started_at = excluded.started_at,
    took = excluded.took,
    member = excluded.member,
    error = excluded.error
