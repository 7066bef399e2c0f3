-- Feeds rows. A delayed one enters its lane when its time has come. Of the others that have a lane, the first becomes its
-- head: unless it is behind another one here, or somebody is there already, or somebody is just leaving: then its bucket
-- is not among those that were taken, and the next sweep looks at it again. Where keys have a limit and no order, so many
-- become heads.
--
-- Whether somebody is there is asked with a limit: `exists` may be planned as one look at the whole table.
-- Index: queued_head, queued_lane, delivery_head; each row enters the primary key and one or two others. Locks: the new rows; the
-- subscription's lock is held.
with
taken as materialized (
    select string_to_array(current_setting('postrider.buckets', true), ',')::integer[] as buckets
),
most as materialized (
    select order_rule = 'key' as ordered,
        case when order_rule = 'key' then 1 else coalesce(per_key, 2147483647) end as heads
    from postrider.subscription
    where id = $1
)
insert into postrider.queued
    (subscription_id, event_id, last_id, virtual_time, turn, due_at, tenant, bytes, events, rank, late, parks, state, key,
    spans)
select $1, event_id, last_id, virtual_time, turn, due_at, tenant, bytes, events, rank, late,
    key is not null and due_at is null,
    case
        when due_at is not null then 'd'
        when key is null then 'r'
        when place >= (select heads from most) then 'w'
        when not bucket = any ((select buckets from taken)::integer[]) then 'w'
        when place + (
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
    end,
    key, spans::bigint[]
from unnest(
    $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::timestamptz[], $7::bigint[], $8::integer[], $9::smallint[],
    $10::smallint[], $11::boolean[], $12::integer[], $13::integer[], $14::text[], $15::text[]
) as row (
    event_id, last_id, virtual_time, turn, due_at, tenant, bytes, events, rank, late, place, bucket, key, spans
)
