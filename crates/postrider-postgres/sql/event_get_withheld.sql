-- As event_get, for those who may not read payloads and headers.
-- Index: primary keys of leaf and kept events. Locks: none.
select
    id,
    case when octet_length(topic) <= 255 then topic else substr(topic, 1, 255) end as topic,
    case when octet_length(type) <= 255 then type else substr(type, 1, 255) end as type,
    case when octet_length(key) <= 1024 then key end as key,
    null::json,
    null::bytea,
    null::json,
    created_at,
    due_at,
    case
        when octet_length(topic) > 255 or octet_length(type) > 255 or octet_length(key) > 1024
        then array[octet_length(topic), octet_length(type), octet_length(key), 0]
    end as lengths,
    0,
    xid
from postrider.event_leaf
where id = any($1)
union all
select
    id,
    case when octet_length(topic) <= 255 then topic else substr(topic, 1, 255) end as topic,
    case when octet_length(type) <= 255 then type else substr(type, 1, 255) end as type,
    case when octet_length(key) <= 1024 then key end as key,
    null::json,
    null::bytea,
    null::json,
    created_at,
    due_at,
    case
        when octet_length(topic) > 255 or octet_length(type) > 255 or octet_length(key) > 1024
        then array[octet_length(topic), octet_length(type), octet_length(key), 0]
    end as lengths,
    0,
    null
from postrider.kept_event
where id = any($1)
