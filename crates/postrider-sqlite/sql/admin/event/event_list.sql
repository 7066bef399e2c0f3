-- Looks at events backwards from an id, for listings: what decides whether one is wanted.
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
    case when octet_length(key) <= 1024 then key end
from postrider_event
where id < ?1
order by id desc
