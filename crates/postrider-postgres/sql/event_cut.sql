-- The events of a leaf without what breaks a limit: statements that read events have it in the place of the table. `lengths`
-- says how long topic, type, key, headers and payload are, if one of them is too long. Nothing large is taken out of its
-- TOAST to find that out, but headers that are compressed to 128 KiB or less, since JSON does not tell its length. What is
-- compressed to more is told by its size as it lies.
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
    case when octet_length(payload) <= 1048576 then payload end as payload,
    case
        when octet_length(topic) > 255
            or octet_length(type) > 255
            or octet_length(key) > 1024
            or pg_column_size(headers) > 131076
            or (pg_column_compression(headers) is not null and octet_length(headers::text) > 131072)
            or octet_length(payload) > 1048576
        then array[
            octet_length(topic),
            octet_length(type),
            octet_length(key),
            case when pg_column_size(headers) > 131076 then pg_column_size(headers) else octet_length(headers::text) end,
            octet_length(payload)
        ]
    end as lengths
from postrider.event_leaf
