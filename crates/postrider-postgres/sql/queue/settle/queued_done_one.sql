-- The same for rows that were all claimed at once, which is usual: they need not be locked before they go.
-- Index: primary keys. Locks: the rows, their claim.
with
gone as (
    delete from postrider.queued
    where subscription_id = $1
        and event_id = any($2)
        and token = $3
        and leased
    returning event_id, events, key, late, parks, turn
),
closed as materialized (
    select count(*) as rows, sum(events) as events
    from gone
),
emptied as (
    delete from postrider.claim
    where token = $3
        and rows_left <= (select rows from closed)
),
shortened as (
    update postrider.claim
    set rows_left = rows_left - (select rows from closed),
        events_left = events_left - (select events from closed)
    where token = $3
        and rows_left > (select rows from closed)
        and (select rows from closed) > 0
)
select event_id, case when parks then key end, late, turn
from gone
