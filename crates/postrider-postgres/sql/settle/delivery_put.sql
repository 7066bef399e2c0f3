-- Writes the states of deliveries over earlier ones. An edited payload stays, and so does the time of death of a row
-- that was dead already, so that a repeated settle changes nothing. Only what may be attempted is due; what parks
-- nothing stands in no lane, so it has nothing to wait for.
-- Index: primary key; each row enters one or two of the partial indexes. Locks: the rows.
insert into postrider.delivery
    (subscription_id, event_id, shard, key, late, turn, parks, state, attempts, due_at, died_at)
select $1, event_id, shard, key, late, turn, parks, state, attempts,
    case
        when state <> 'pending' then null
        when due_at is not null then due_at
        when due_in is not null then postrider.clock() + due_in
        when not parks then postrider.clock()
    end,
    case when state = 'dead' then postrider.clock() end
from unnest(
    $2::bigint[], $3::smallint[], $4::text[], $5::boolean[], $6::bigint[], $7::boolean[], $8::text[], $9::integer[],
    $10::timestamptz[], $11::interval[]
) as row (event_id, shard, key, late, turn, parks, state, attempts, due_at, due_in)
on conflict (subscription_id, event_id) do update
set shard = excluded.shard,
    key = excluded.key,
    late = excluded.late,
    turn = excluded.turn,
    parks = excluded.parks,
    state = excluded.state,
    attempts = excluded.attempts,
    due_at = excluded.due_at,
    died_at = case when excluded.died_at is null then null else coalesce(delivery.died_at, excluded.died_at) end
