-- Forgets the attempts, results and idempotency keys of the events that go with a leaf. A producer that repeats such a
-- key just now waits until the transaction ends, so that little follows it. One that is taking such a key over is
-- waited for, and then the key is another event's. Index: idempotency_event, primary keys. Locks: the rows; the leaf's
-- lock is held.
with results as (
    delete from postrider.result as result
    using postrider.event_leaf as event
    where result.event_id = event.id
        and not exists (select from postrider.kept_event as kept where kept.id = event.id)
),
superseded as (
    delete from postrider.superseded as superseded
    using postrider.event_leaf as event
    where superseded.event_id = event.id
        and not exists (select from postrider.kept_event as kept where kept.id = event.id)
),
attempts as (
    delete from postrider.attempt as attempt
    using postrider.event_leaf as event
    where attempt.event_id = event.id
        and not exists (select from postrider.kept_event as kept where kept.id = event.id)
)
delete from postrider.idempotency as idempotency
using postrider.event_leaf as event
where idempotency.event_id = event.id
    and not exists (select from postrider.kept_event as kept where kept.id = event.id)
