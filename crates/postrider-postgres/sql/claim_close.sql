-- Notes that claims have so many rows and events less, and forgets those that have none. Rows that they have got instead of a
-- block are added.
-- Index: primary key. Locks: the claims.
with
closed as (
    select *
    from unnest($1::bigint[], $2::integer[], $3::integer[]) as closed (token, rows, events)
),
emptied as (
    delete from postrider.claim as claim
    using closed
    where claim.token = closed.token
        and claim.rows_left <= closed.rows
)
update postrider.claim as claim
set rows_left = claim.rows_left - closed.rows,
    events_left = claim.events_left - closed.events,
    rows = claim.rows || $4::bigint[]
from closed
where claim.token = closed.token
    and claim.rows_left > closed.rows
