-- Makes ready what waits in lanes that may have several heads: where keys have a limit and no order. No claim looks
-- below the front.
--
-- A caller that has taken heads away ($4 says how many) does not see other such transactions, and replaces what it
-- took, no more: side by side they make no more ready than they take. Only if a lowered limit allows fewer are fewer
-- made ready, by a caller that has the lane's bucket exclusively, because two that saw each other's heads would leave
-- the lane with none. A caller that has taken none (null) is the only one that fills these lanes, and fills them up.
-- Index: queued_head, queued_lane, then primary keys. Locks: the promoted rows; rows that another transaction is making
-- ready are passed over. The buckets of the lanes ($5) are held.
with
most as materialized (
    select coalesce(per_key, 2147483647) as heads
    from postrider.subscription
    where id = $1
),
lane as materialized (
    select said.key, said.late, said.taken, said.bucket,
        (select heads from most) - (
            select count(*)
            from postrider.queued as head
            where head.subscription_id = $1
                and head.key = said.key
                and head.late = said.late
                and head.parks
                and head.state <> 'w'
        ) as free
    from unnest($2::text[], $3::boolean[], $4::integer[], $5::integer[]) as said (key, late, taken, bucket)
),
first as materialized (
    select waiting.event_id
    from lane
    cross join lateral (
        select event_id
        from postrider.queued
        where subscription_id = $1
            and key = lane.key
            and late = lane.late
            and parks
            and state = 'w'
        order by turn, event_id
        limit case
            when lane.taken is null then greatest(lane.free, 0)
            when lane.free >= lane.taken then lane.taken
            when pg_try_advisory_xact_lock(
                (('postrider.queued'::regclass::oid::bigint + $1::bigint * 7919) % 2147483647)::integer, lane.bucket
            ) then greatest(lane.free, 0)
            else lane.taken
        end
        for update skip locked
    ) as waiting
)
update postrider.queued
set state = 'r',
    virtual_time = greatest(
        virtual_time,
        (select front from postrider.queue_front as front where front.subscription_id = $1 and front.rank = queued.rank)
    )
where subscription_id = $1
    and event_id = any (array (select event_id from first))
    and state = 'w'
returning rank, virtual_time
