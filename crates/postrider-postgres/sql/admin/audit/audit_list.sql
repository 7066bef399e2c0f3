-- What was done to one event of some subscriptions, or to all of their events by a seek, newest first.
-- Index: audit_event, once for each of the two. Locks: none.
select wanted.subscription, recent.at, recent.actor, recent.action, recent.detail
from unnest($1::text[], $2::timestamptz[]) as wanted (subscription, since)
cross join lateral (
    select audit.id, audit.at, audit.actor, audit.action, audit.detail
    from postrider.audit as audit
    where audit.subscription = wanted.subscription
        and audit.at >= wanted.since
        and (audit.event_id = $3 or (audit.event_id is null and audit.action = 'subscription_seek'))
    order by audit.id desc
    limit $4
) as recent
order by recent.id desc
