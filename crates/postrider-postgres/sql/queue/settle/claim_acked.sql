-- Takes rows out of their claims that handlers have taken out of the queue themselves, unless they are still there.
-- Index: primary keys. Locks: the claims.
with gone as materialized (
    select token, event_id, events
    from unnest($2::bigint[], $3::bigint[], $4::integer[]) as said (token, event_id, events)
    where (
        select true
        from postrider.queued as queued
        where queued.event_id = said.event_id
            and queued.subscription_id = $1
            and queued.token = said.token
            and queued.leased
    ) is null
)
update postrider.claim
set rows = array(
        select event_id
        from unnest(claim.rows) as event_id
        where (event_id, claim.token) not in (select gone.event_id, gone.token from gone)
    ),
    rows_left = rows_left - (
        select count(*)
        from gone
        where gone.token = claim.token
            and gone.event_id = any (claim.rows)
    ),
    events_left = events_left - (
        select coalesce(sum(gone.events), 0)
        from gone
        where gone.token = claim.token
            and gone.event_id = any (claim.rows)
    )
where token = any($2)
