-- The events of a leaf without headers that are too long: statements that read events have it in the place of the
-- table, and leave out payloads by their size. `lengths` says how long the headers are and how many payloads there are,
-- if they are too long or there are two. Topics, types and keys come as they are, because the types of their columns
-- bound them. The size of JSON is what it takes where it lies, a header of up to four bytes with it, because its length
-- would cost a copy; only what is compressed is looked at, unless it is too large even so. What is null is asked for
-- first: most events have no headers, and so a row costs 0.02 µs more than without all this (0.14 with checks of every
-- column). Index: that of the statement around it, which the planner sees through. Locks: none.
select
    xid,
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
from postrider.event_leaf
