-- What listings show of some events, from one leaf or kept after it was emptied: the first 4 KiB of payloads, and headers if they
-- are no longer than that.
-- Index: primary keys. Locks: none.
select id, topic, type, key, substring(payload from 1 for 4096) as payload,
    case when octet_length(headers::text) <= 4096 then headers end as headers, created_at, due_at, lengths,
    coalesce(octet_length(payload), lengths[5], 0)::bigint as payload_bytes,
    coalesce(octet_length(headers::text), lengths[4], 0) > 4096 as headers_cut
from postrider.event_cut as event
where id = any($1)
union all
select id, topic, type, key, substring(payload from 1 for 4096) as payload,
    case when octet_length(headers::text) <= 4096 then headers end as headers, created_at, due_at, lengths,
    coalesce(octet_length(payload), lengths[5], 0)::bigint as payload_bytes,
    coalesce(octet_length(headers::text), lengths[4], 0) > 4096 as headers_cut
from postrider.kept_cut as kept
where id = any($1)
