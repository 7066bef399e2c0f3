-- The events of a leaf without names, keys and headers that are too long: statements that read events have it in the place of
-- the table, and leave out payloads by their size. `lengths` says how long topic, type, key and headers are and how many payloads
-- there are, if one of them is too long or there are two. The size of JSON is what it takes where it lies, a header of up to four bytes with it, because its length would
-- cost a copy; only what is compressed is looked at, unless it is too large even so.
-- Index: that of the statement around it, which the planner sees through. Locks: none.
select
    xid,
    id,
    created_at,
    due_at,
    case when octet_length(topic) <= 255 then topic else substr(topic, 1, 255) end as topic,
    case when octet_length(type) <= 255 then type else substr(type, 1, 255) end as type,
    case when octet_length(key) <= 1024 then key end as key,
    case
        when pg_column_size(headers) > 131076 then null
        when pg_column_compression(headers) is null or octet_length(headers::text) <= 131072 then headers
    end as headers,
    payload,
    payload_bytes,
    coalesce(
        octet_length(payload_bytes),
        case
            when pg_column_compression(payload) is null or pg_column_size(payload) > 1048580 then pg_column_size(payload)
            else octet_length(payload::text)
        end
    ) as size,
    case
        when octet_length(topic) > 255
            or octet_length(type) > 255
            or octet_length(key) > 1024
            or pg_column_size(headers) > 131076
            or (pg_column_compression(headers) is not null and octet_length(headers::text) > 131072)
            or (payload is not null and payload_bytes is not null)
        then array[
            octet_length(topic),
            octet_length(type),
            octet_length(key),
            case when pg_column_size(headers) > 131076 then pg_column_size(headers) else octet_length(headers::text) end,
            num_nonnulls(payload, payload_bytes)
        ]
    end as lengths
from postrider.event_leaf
