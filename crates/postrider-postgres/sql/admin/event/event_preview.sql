-- What listings show of some events, from one leaf or kept after it was emptied: the first 4,096 characters of
-- payloads, as bytes, and headers if they are no longer than that. Index: primary keys. Locks: none.
select id, topic, type, key, null::json as payload,
    case
        when size <= 1048580
        then coalesce(substring(payload_bytes from 1 for 4096), convert_to(substr(payload::text, 1, 4096), 'UTF8'))
    end as payload_bytes,
    case when octet_length(headers::text) <= 4096 then headers end as headers, created_at, due_at, lengths, size,
    case when size <= 1048580 then coalesce(octet_length(payload_bytes), octet_length(payload::text)) else size end
        as length,
    coalesce(octet_length(headers::text), lengths[4], 0) > 4096 as headers_cut
from postrider.event_cut as event
where id = any($1)
union all
select id, topic, type, key, null::json as payload,
    case
        when size <= 1048580
        then coalesce(substring(payload_bytes from 1 for 4096), convert_to(substr(payload::text, 1, 4096), 'UTF8'))
    end as payload_bytes,
    case when octet_length(headers::text) <= 4096 then headers end as headers, created_at, due_at, lengths, size,
    case when size <= 1048580 then coalesce(octet_length(payload_bytes), octet_length(payload::text)) else size end
        as length,
    coalesce(octet_length(headers::text), lengths[4], 0) > 4096 as headers_cut
from postrider.kept_cut as kept
where id = any($1)
