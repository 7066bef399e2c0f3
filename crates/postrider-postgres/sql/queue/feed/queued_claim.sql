-- Leases rows in the order of rank, virtual time and event: at most $2 rows, of $3 events and $4 bytes give or take the
-- last; of those that have failed before at most $9. Of each rank ($5) it begins at the virtual time ($6, for those
-- that have failed $10) below which there is nothing to find. The token is larger than any that these rows had, and
-- than any of an earlier instant. Says whether the subscription is paused; no row comes back if it is gone.
--
-- What is picked is materialized: a plan that joined it otherwise could pick more than the limit. It is looked up by
-- arrays, not by a join, whose plan would depend on what was last known of a table that fills and empties. Index:
-- queued_ready, queued_again, then the primary key. Locks: the picked rows; rows that another transaction has locked
-- are passed over.
with
now as materialized (select postrider.clock() as at),
subscription as (
    select paused_at is not null as paused
    from postrider.subscription
    where id = $1
),
fresh as materialized (
    select found.*
    from unnest($5::smallint[], $6::bigint[]) as wanted (rank, low)
    cross join lateral (
        select event_id, rank, virtual_time, token, bytes, events
        from postrider.queued
        where subscription_id = $1
            and rank = wanted.rank
            and state = 'r'
            and finished = 0
            and virtual_time >= wanted.low
            and not leased
        order by virtual_time, event_id
        limit $2
        for update skip locked
    ) as found
    where not (select paused from subscription)
    limit $2
),
again as materialized (
    select found.*
    from unnest($5::smallint[], $10::bigint[]) as wanted (rank, low)
    cross join lateral (
        select event_id, rank, virtual_time, token, bytes, events
        from postrider.queued
        where subscription_id = $1
            and rank = wanted.rank
            and state = 'r'
            and finished > 0
            and virtual_time >= wanted.low
            and not leased
        order by virtual_time, event_id
        limit $9
        for update skip locked
    ) as found
    where not (select paused from subscription)
    limit $9
),
picked as materialized (
    select *
    from (
        select * from again
        union all
        select * from fresh
    ) as either
    order by rank, virtual_time, event_id
    limit $2
),
counted as materialized (
    select event_id, token, events,
        sum(events) over place - events as events_before,
        sum(bytes) over place - bytes as bytes_before,
        row_number() over place as n
    from picked
    window place as (order by rank, virtual_time, event_id rows unbounded preceding)
),
chosen as materialized (
    select event_id, events, token
    from counted
    where n = 1 or (events_before < $3 and bytes_before < $4)
),
claim as materialized (
    insert into postrider.claim (token, subscription_id, member_id, lease, until, rows, rows_left, events_left)
    select
        greatest(
            (extract(epoch from (select at from now)) * 1000000)::bigint * 1024 + floor(random() * 1024)::bigint,
            max(token) + 1
        ),
        $1, $7, $8, (select at from now) + $8::interval, array_agg(event_id), count(*), sum(events)
    from chosen
    having count(*) > 0
    returning token
),
leased as (
    update postrider.queued
    set leased = true,
        token = (select token from claim),
        started = started + 1
    where subscription_id = $1
        and event_id = any (array (select event_id from chosen))
    returning event_id, token, rank, virtual_time, started, finished, spans, edited_payload, edited_payload_bytes
)
select subscription.paused, (select at from now), leased.*
from subscription
left join leased on true
