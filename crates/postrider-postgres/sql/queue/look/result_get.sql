-- What was kept of an event's handling, and how far it has come, by subscription.
-- Index: primary key. Locks: none.
select subscription.id, result.result, result.progress, result.percent, result.progress_at
from postrider.subscription as subscription
join postrider.result as result
    on result.subscription_id = subscription.id
    and result.event_id = $1
