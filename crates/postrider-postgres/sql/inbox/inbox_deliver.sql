-- Delivers a batch into an inbox: notes the ids that were not seen yet, adds their events in the batch's order, and
-- forgets some ids that are old. One batch after the other, so that rows become visible in the order of `arrival`;
-- flushed, whatever the database's default. Index: primary key of the ids, and their index by time for those that are
-- old. Locks: other batches, until the transaction ends.
with turn as materialized (
    select
        pg_catalog.pg_advisory_xact_lock(
            pg_catalog.hashtextextended('postrider inbox', 'inbox_event'::regclass::oid::bigint)
        ),
        case pg_catalog.current_setting('synchronous_commit')
            when 'off' then pg_catalog.set_config('synchronous_commit', 'on', true)
        end
),
batch as materialized (
    select sent.*
    from turn
    cross join unnest(
        $1::text[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::bytea[], $7::text[], $8::timestamptz[], $9::text[]
    )
        with ordinality
        as sent (dedup_id, id, topic, type, key, payload, headers, created_at, subscription, place)
),
fresh as (
    insert into inbox_seen (dedup_id)
    select dedup_id
    from batch
    order by place
    on conflict do nothing
    returning dedup_id
),
old as (
    select dedup_id
    from inbox_seen
    where seen_at < pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => $10)
    order by seen_at
    limit $11
),
gone as (
    delete from inbox_seen
    using old
    where inbox_seen.dedup_id = old.dedup_id
)
insert into inbox_event (dedup_id, id, topic, type, key, payload, headers, created_at, subscription)
select dedup_id, id, topic, type, key, payload, headers::json, created_at, subscription
from batch
join fresh using (dedup_id)
order by place
