-- As event_list, for those who may not read payloads and headers.
-- Index: primary keys of leaf and kept events, backwards. Locks: none.
with
looked as materialized (
    select *
    from (
        (
            select
                id,
                topic,
                coalesce(type, topic) as type,
                key
            from postrider.event_leaf
            where id >= $1 and id < $2
            order by id desc
            limit $3
        )
        union all
        (
            select
                id,
                topic,
                coalesce(type, topic) as type,
                key
            from postrider.kept_event
            where id >= $1 and id < $2
            order by id desc
            limit $3
        )
    ) as both_places
    order by id desc
    limit $3
),
wanted as (
    select id
    from looked
    where ($4::text[] is null or topic like any($4))
        and ($5::text[] is null or type like any($5))
        and ($6::text is null or key = $6)
    order by id desc
    limit $7
),
found as (
    select
        event.id,
        topic,
        type,
        key,
        created_at,
        due_at,
        null::integer[] as lengths
    from wanted
    join postrider.event_leaf as event on event.id = wanted.id
    union all
    select
        kept.id,
        topic,
        type,
        key,
        created_at,
        due_at,
        null::integer[] as lengths
    from wanted
    join postrider.kept_event as kept on kept.id = wanted.id
)
select
    found.id, found.topic, found.type, found.key, null::json, null::bytea, null::json, found.created_at, found.due_at,
    found.lengths, 0, 0, false, seen.count, seen.lowest
from (select count(*), min(id) as lowest from looked) as seen
left join found on true
order by found.id desc
