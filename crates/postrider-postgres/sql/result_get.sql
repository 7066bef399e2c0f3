-- What was kept of an event's handling, by subscription.
-- Index: primary key. Locks: none.
select subscription.id, result.result
from postrider.subscription as subscription
join postrider.result as result
    on result.subscription_id = subscription.id
    and result.event_id = $1
