-- The rows that stand for an event, in any subscription. A block is found by where it begins and ends, and may yet have
-- other events than this.
-- Index: primary key, from the event backwards. Locks: none.
select subscription.id, row.event_id, row.state::text, row.leased, row.started, row.due_at, row.key, row.late, row.spans,
    row.token, row.finished
from postrider.subscription as subscription
cross join lateral (
    select event_id, state, leased, started, due_at, key, late, spans, token, finished
    from postrider.queued as queued
    where queued.subscription_id = subscription.id
        and queued.event_id <= $1
        and queued.last_id >= $1
        and ($2::bigint is null or queued.subscription_id = $2)
    order by queued.event_id desc
    limit 100
) as row
where subscription.mode = 'queue'
