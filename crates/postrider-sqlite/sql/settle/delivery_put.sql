-- Writes the state of one delivery over an earlier one. An edited payload stays, and so does the time of
-- death of a row that was dead already, so that a repeated settle changes nothing.
-- Index: primary key; the row enters one or two of the partial indexes. Locks: the writer lock.
insert into postrider_delivery
    (subscription_id, event_id, shard, key, late, turn, parks, state, attempts, due_at, died_at)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
on conflict (subscription_id, event_id) do update
set shard = excluded.shard,
    key = excluded.key,
    late = excluded.late,
    turn = excluded.turn,
    parks = excluded.parks,
    state = excluded.state,
    attempts = excluded.attempts,
    due_at = excluded.due_at,
    died_at = case when excluded.died_at is null then null else coalesce(died_at, excluded.died_at) end
