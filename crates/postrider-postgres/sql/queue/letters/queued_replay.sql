-- Sends dead letters of queues round again, ready, or waiting in their lane until the next statement has looked at it.
-- One that holds its lane keeps its place; any other goes to the end: by a turn that is drawn where keys have an order,
-- in a late lane behind all that has come due, else behind all that was emitted ($3). No claim looks below the front.
-- Index: primary keys. Locks: the rows; the locks of their subscriptions are held.
with
now as materialized (select postrider.clock() as at),
gone as (
    delete from postrider.delivery as delivery
    using unnest($1::bigint[], $2::bigint[]) as letter (subscription_id, event_id)
    where delivery.subscription_id = letter.subscription_id
        and delivery.event_id = letter.event_id
        and delivery.state = 'dead'
    returning delivery.*
),
back as (
    insert into postrider.queued
        (subscription_id, event_id, last_id, virtual_time, turn, bytes, events, rank, late, parks, state, key, edited_payload,
        edited_payload_bytes)
    select gone.subscription_id, gone.event_id, gone.event_id,
        coalesce(
            (
                select max(front)
                from postrider.queue_front as front
                where front.subscription_id = gone.subscription_id
                    and front.rank = 0
            ),
            0
        ),
        case
            when gone.parks then gone.turn
            when gone.late then (select extract(epoch from at) * 1000000 from now)::bigint
            when gone.key is not null and subscription.order_rule = 'key' then nextval('postrider.queued_n')
            else $3
        end,
        0, 1, 0, gone.late, gone.key is not null, case when gone.key is null then 'r' else 'w' end, gone.key,
        gone.edited_payload, gone.edited_payload_bytes
    from (select * from gone order by subscription_id, event_id) as gone
    cross join lateral (
        select order_rule
        from postrider.subscription
        where id = gone.subscription_id
        limit 1
    ) as subscription
),
front as (
    insert into postrider.queue_front (subscription_id, rank, front)
    select distinct gone.subscription_id, 0::smallint, 0
    from gone
    on conflict do nothing
)
select subscription_id, event_id, key, late
from gone
