-- Gives lanes that have no head one: the first row that waits. Of each lane it looks from its floor on ($4), before
-- which nothing is left. No claim looks below the front. Index: queued_lane, queued_head, delivery_head, then primary
-- keys. Locks: the promoted rows; the buckets of the lanes are held.
with first as materialized (
    select waiting.event_id
    from unnest($2::text[], $3::boolean[], $4::bigint[]) as lane (key, late, floor)
    cross join lateral (
        select event_id
        from postrider.queued
        where subscription_id = $1
            and key = lane.key
            and late = lane.late
            and parks
            and state = 'w'
            and turn >= lane.floor
        order by turn, event_id
        limit 1
    ) as waiting
    where (
            select true
            from postrider.queued
            where subscription_id = $1
                and key = lane.key
                and late = lane.late
                and parks
                and state <> 'w'
                and turn >= lane.floor
            limit 1
        ) is null
        and (
            select true
            from postrider.delivery
            where subscription_id = $1
                and key = lane.key
                and late = lane.late
                and parks
                and (state <> 'pending' or due_at is not null)
            limit 1
        ) is null
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
