-- Removes at most $2 kept events from before $1 that no exception needs any more, with what is known about them.
-- Index: primary keys, delivery_event, idempotency_event. Locks: the rows; retention's lock is held.
with
gone as (
    delete from postrider.kept_event
    where id in (
        select kept.id
        from postrider.kept_event as kept
        where kept.created_at < $1
            and not exists (select from postrider.delivery as delivery where delivery.event_id = kept.id)
            and not exists (
                select
                from postrider.subscription as subscription
                join postrider.queued as queued
                    on queued.subscription_id = subscription.id
                    and queued.event_id = kept.id
                where subscription.mode = 'queue'
            )
        order by kept.id
        limit $2
    )
    returning id
),
attempts as (
    delete from postrider.attempt as attempt
    using gone
    where attempt.event_id = gone.id
),
results as (
    delete from postrider.result as result
    using gone
    where result.event_id = gone.id
),
superseded as (
    delete from postrider.superseded as superseded
    using gone
    where superseded.event_id = gone.id
),
keys as (
    delete from postrider.idempotency as idempotency
    using gone
    where idempotency.event_id = gone.id
)
select count(*)
from gone
