-- Rows that are due, of the shards whose bits are set in $5 or of all, and not in the owner's memory, soonest first,
-- each with what waits behind it if it is the head of its lane. One statement, so that a head and its followers are of
-- one moment. Index: delivery_due, then delivery_lane for each head. Locks: none.
with due as materialized (
    select event_id, key, late, turn, parks, state, attempts, edited_payload, edited_payload_bytes,
        row_number() over (order by due_at, event_id) as run
    from (
        select *
        from postrider.delivery
        where subscription_id = $1
            and due_at is not null
            and due_at <= postrider.clock()
            and event_id <> all ($2::bigint[])
            and ($5::bigint is null or ($5 >> shard) & 1 = 1)
        order by due_at, event_id
        limit $3
    ) as soonest
)
select run, 0::bigint as place, event_id, key, late, turn, parks, state = 'done', attempts, edited_payload,
    edited_payload_bytes
from due
union all
select due.run, follower.place, follower.event_id, due.key, due.late, follower.turn, true, false, follower.attempts,
    follower.edited_payload, follower.edited_payload_bytes
from due
cross join lateral (
    select event_id, turn, attempts, edited_payload, edited_payload_bytes,
        row_number() over (order by turn, event_id) as place
    from (
        select *
        from postrider.delivery as waiting
        where waiting.subscription_id = $1
            and waiting.key = due.key
            and waiting.late = due.late
            and waiting.parks
            and waiting.state = 'pending'
            and waiting.due_at is null
        order by waiting.turn, waiting.event_id
        limit $4
    ) as next_in_lane
) as follower
where due.parks
order by run, place
