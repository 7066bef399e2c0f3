-- Removes leased rows that are done, and what is left of their claims. Lanes that lose their head by it are told: the
-- next row must be looked for by a later statement, which sees what was fed before the locks were free. Index: primary
-- keys. Locks: the rows, their claims.
with
ours as materialized (
    select queued.*
    from unnest($2::bigint[], $3::bigint[]) as said (event_id, token)
    cross join lateral (
        select event_id, token, events, key, late, parks, turn
        from postrider.queued
        where subscription_id = $1
            and event_id = said.event_id
            and token = said.token
            and leased
        for update
    ) as queued
),
gone as (
    delete from postrider.queued
    where subscription_id = $1
        and event_id = any (array (select event_id from ours))
),
closed as materialized (
    select token, count(*) as rows, sum(events) as events
    from ours
    group by token
),
emptied as (
    delete from postrider.claim
    where token = any (array (select token from closed))
        and rows_left <= (select rows from closed where closed.token = claim.token)
),
shortened as (
    update postrider.claim
    set rows_left = rows_left - (select rows from closed where closed.token = claim.token),
        events_left = events_left - (select events from closed where closed.token = claim.token)
    where token = any (array (select token from closed))
        and rows_left > (select rows from closed where closed.token = claim.token)
)
select event_id, case when parks then key end, late, turn
from ours
