-- Reads one event, without what breaks a limit, and with the length of each column.
-- Index: primary key. Locks: none.
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
    case when octet_length(payload) <= 1048576 then payload end,
    case when octet_length(headers) <= 131072 then headers end,
    created_at,
    due_at,
    octet_length(topic),
    octet_length(type),
    octet_length(key),
    octet_length(payload),
    octet_length(headers)
from postrider_event
where id = ?1
