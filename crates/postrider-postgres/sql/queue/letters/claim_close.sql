-- Notes that claims have so many rows and events less, and forgets those that have none. Rows that they have got
-- instead of a block are added. Index: primary key. Locks: the claims.
with
closed as materialized (
    select *
    from unnest($1::bigint[], $2::integer[], $3::integer[]) as closed (token, rows, events)
),
emptied as (
    delete from postrider.claim
    where token = any($1)
        and rows_left <= (select rows from closed where closed.token = claim.token)
)
update postrider.claim
set rows_left = rows_left - (select rows from closed where closed.token = claim.token),
    events_left = events_left - (select events from closed where closed.token = claim.token),
    rows = rows || $4::bigint[]
where token = any($1)
    and rows_left > (select rows from closed where closed.token = claim.token)
