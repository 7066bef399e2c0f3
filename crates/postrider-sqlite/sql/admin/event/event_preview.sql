-- What a listing shows of an event: the beginning of its payload, headers only if they are short, and the length of
-- each column. Index: primary key. Locks: none.
select
    id,
    case
        when octet_length(topic) <= 255 then topic
        when octet_length(topic) <= 1048576 then substr(topic, 1, 255)
    end,
    case
        when octet_length(type) <= 255 then type
        when octet_length(type) <= 1048576 then substr(type, 1, 255)
    end,
    case when octet_length(key) <= 1024 then key end,
    case when octet_length(payload) <= 1048576 then substr(cast(payload as blob), 1, 4096) end,
    case when octet_length(headers) <= 4096 then headers end,
    created_at,
    due_at,
    octet_length(topic),
    octet_length(type),
    octet_length(key),
    octet_length(payload),
    octet_length(headers)
from postrider_event
where id = ?1
