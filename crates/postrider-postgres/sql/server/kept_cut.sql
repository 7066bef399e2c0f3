-- The same of events whose leaf was emptied.
-- Index: that of the statement around it, which the planner sees through. Locks: none.
select
    null::xid8 as xid,
    id,
    created_at,
    due_at,
    topic,
    type,
    key,
    case
        when headers is null then null
        when pg_column_size(headers) <= 131076
            and (pg_column_compression(headers) is null or octet_length(headers::text) <= 131072)
        then headers
    end as headers,
    payload,
    payload_bytes,
    case
        when payload is null then octet_length(payload_bytes)
        when pg_column_compression(payload) is null or pg_column_size(payload) > 1048580 then pg_column_size(payload)
        else octet_length(payload::text)
    end as size,
    case
        when headers is null and (payload is null or payload_bytes is null) then null
        when pg_column_size(headers) > 131076
            or (pg_column_compression(headers) is not null and octet_length(headers::text) > 131072)
            or (payload is not null and payload_bytes is not null)
        then array[
            case when pg_column_size(headers) > 131076 then pg_column_size(headers) else octet_length(headers::text) end,
            num_nonnulls(payload, payload_bytes)
        ]
    end as lengths
from postrider.kept_event
