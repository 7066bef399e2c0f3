-- Of the newest $3 events with ids from $1 up to but not including $2 those that are wanted, newest first; and how
-- many were looked at and down to which id, in every row, of which there is always one. Payloads are
-- the first 4,096 characters, as bytes, and headers come if they are no longer than that.
-- Index: primary keys, backwards. Locks: none.
with
looked as materialized (
    select *
    from (
        (
            select id, topic, coalesce(type, topic) as type, key
            from postrider.event_cut as event
            where id >= $1 and id < $2
            order by id desc
            limit $3
        )
        union all
        (
            select id, topic, coalesce(type, topic) as type, key
            from postrider.kept_cut as kept
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
    select event.id, topic, type, key, null::json as payload,
        case
            when size <= 1048580
            then coalesce(substring(payload_bytes from 1 for 4096), convert_to(substr(payload::text, 1, 4096), 'UTF8'))
        end as payload_bytes,
        case when octet_length(headers::text) <= 4096 then headers end as headers, created_at, due_at, lengths, size,
        case when size <= 1048580 then coalesce(octet_length(payload_bytes), octet_length(payload::text)) else size end
            as length,
        coalesce(octet_length(headers::text), lengths[4], 0) > 4096 as headers_cut
    from wanted
    join postrider.event_cut as event on event.id = wanted.id
    union all
    select kept.id, topic, type, key, null::json as payload,
        case
            when size <= 1048580
            then coalesce(substring(payload_bytes from 1 for 4096), convert_to(substr(payload::text, 1, 4096), 'UTF8'))
        end as payload_bytes,
        case when octet_length(headers::text) <= 4096 then headers end as headers, created_at, due_at, lengths, size,
        case when size <= 1048580 then coalesce(octet_length(payload_bytes), octet_length(payload::text)) else size end
            as length,
        coalesce(octet_length(headers::text), lengths[4], 0) > 4096 as headers_cut
    from wanted
    join postrider.kept_cut as kept on kept.id = wanted.id
)
select
    found.id, found.topic, found.type, found.key, found.payload, found.payload_bytes, found.headers, found.created_at,
    found.due_at, found.lengths, found.size, found.length, found.headers_cut, seen.count, seen.lowest
from (select count(*), min(id) as lowest from looked) as seen
left join found on true
order by found.id desc
