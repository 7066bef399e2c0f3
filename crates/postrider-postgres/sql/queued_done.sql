-- Removes leased rows that are done, and what is left of their claims. Lanes that lose their head by it are told: the next row
-- must be looked for by a later statement, which sees what was fed before the locks were free.
-- Index: primary keys. Locks: the rows, their lanes' buckets shared, their claims.
with
ours as materialized (
    select queued.event_id, queued.token, queued.events, queued.key, queued.late, queued.parks
    from unnest($2::bigint[], $3::bigint[]) as said (event_id, token)
    join postrider.queued as queued
        on queued.subscription_id = $1
        and queued.event_id = said.event_id
        and queued.token = said.token
        and queued.leased
    for update of queued
),
gone as (
    delete from postrider.queued as queued
    using ours
    where queued.subscription_id = $1
        and queued.event_id = ours.event_id
),
closed as (
    select token, count(*) as rows, sum(events) as events
    from ours
    group by token
),
emptied as (
    delete from postrider.claim as claim
    using closed
    where claim.token = closed.token
        and claim.rows_left <= closed.rows
),
shortened as (
    update postrider.claim as claim
    set rows_left = claim.rows_left - closed.rows,
        events_left = claim.events_left - closed.events
    from closed
    where claim.token = closed.token
        and claim.rows_left > closed.rows
)
select event_id, case when parks then key end, late
from ours
