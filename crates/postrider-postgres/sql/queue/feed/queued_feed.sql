-- Feeds rows. A delayed one enters its lane when its time has come. Of the others that have a lane, the first becomes
-- its head: unless it is behind another one here, or the lane has a head already, or a settle is just taking the head
-- away. In the last case its bucket is not among the locked ones, and the next sweep looks at it again. Where keys have
-- a limit and no order, so many become heads. Where they have an order, lanes are looked at from their floors on ($16),
-- before which nothing is left, and a row gets its turn here. Returns the floor of each lane from now on, in the order
-- of the first rows of lanes; null where it is not known.
--
-- The look for an existing head has a limit: `exists` may be planned as one look at the whole table. Index:
-- queued_head, queued_lane, delivery_head; each row enters the primary key and one or two others. Locks: the new rows;
-- the subscription's lock is held, which makes turns grow in the order in which feeds are committed.
with
taken as materialized (
    select string_to_array(current_setting('postrider.buckets', true), ',')::integer[] as buckets
),
most as materialized (
    select order_rule = 'key' as ordered,
        case when order_rule = 'key' then 1 else coalesce(per_key, 2147483647) end as heads
    from postrider.subscription
    where id = $1
),
new as materialized (
    select row.*,
        case
            when key is not null and not late and (select ordered from most) then nextval('postrider.queued_n')
            else said_turn
        end as turn,
        head.turn as head_turn,
        case
            when due_at is not null then 'd'
            when key is null then 'r'
            when place >= (select heads from most) then 'w'
            when not bucket = any ((select buckets from taken)::integer[]) then 'w'
            when head.turn is not null then 'w'
            when not (select ordered from most) and place + (
                select count(*)
                from (
                    select
                    from postrider.queued as other
                    where other.subscription_id = $1
                        and other.key = row.key
                        and other.late = row.late
                        and other.parks
                        and other.state <> 'w'
                    limit (select heads from most)
                ) as head
            ) >= (select heads from most) then 'w'
            when (select ordered from most) and (
                select true
                from postrider.queued as other
                where other.subscription_id = $1
                    and other.key = row.key
                    and other.late = row.late
                    and other.parks
                    and other.state = 'w'
                    and other.turn >= row.floor
                limit 1
            ) then 'w'
            when (
                select true
                from postrider.delivery as other
                where other.subscription_id = $1
                    and other.key = row.key
                    and other.late = row.late
                    and other.parks
                    and (other.state <> 'pending' or other.due_at is not null)
                limit 1
            ) then 'w'
            else 'r'
        end as state
    from unnest(
        $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::timestamptz[], $7::bigint[], $8::integer[], $9::smallint[],
        $10::smallint[], $11::boolean[], $12::integer[], $13::integer[], $14::text[], $15::text[], $16::bigint[]
    ) with ordinality as row (
        event_id, last_id, virtual_time, said_turn, due_at, tenant, bytes, events, rank, late, place, bucket, key, spans, floor, n
    )
    left join lateral (
        select other.turn
        from postrider.queued as other
        where row.place = 0
            and row.bucket is not null
            and (select ordered from most)
            and other.subscription_id = $1
            and other.key = row.key
            and other.late = row.late
            and other.parks
            and other.state <> 'w'
            and other.turn >= row.floor
        order by other.turn
        limit 1
    ) as head on true
),
fed as (
    insert into postrider.queued
        (subscription_id, event_id, last_id, virtual_time, turn, due_at, tenant, bytes, events, rank, late, parks, state, key,
        spans)
    select $1, event_id, last_id, virtual_time, turn, due_at, tenant, bytes, events, rank, late,
        key is not null and due_at is null, state::"char", key, spans::bigint[]
    from new
)
select array_agg(coalesce(head_turn, case when state = 'r' and (select ordered from most) then turn end) order by n)
from new
where place = 0
    and bucket is not null
