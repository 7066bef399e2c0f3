-- How many of some rows are leased under a token, locked by another transaction or not. Index: primary key. Locks:
-- none.
select count(*)
from postrider.queued
where subscription_id = $1
    and event_id = any($2)
    and token = $3
    and leased
