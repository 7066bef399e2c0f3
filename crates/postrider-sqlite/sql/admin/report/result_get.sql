-- What a handler wanted to be kept, and how far it has come.
-- Index: primary key. Locks: none.
select result, progress, percent, progress_at
from postrider_result
where subscription_id = ?1
    and event_id = ?2
