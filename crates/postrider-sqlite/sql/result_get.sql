-- What a handler wanted to be kept.
-- Index: primary key. Locks: none.
select result
from postrider_result
where subscription_id = ?1
    and event_id = ?2
