-- What was done to one event of a subscription, or to all of them by a seek, newest first.
-- Index: postrider_audit_event, once for each of the two. Locks: none.
select at, actor, action, detail
from postrider_audit
where subscription = ?1
    and at >= ?2
    and (event_id = ?3 or (event_id is null and action = 'subscription_seek'))
order by id desc
limit ?4
