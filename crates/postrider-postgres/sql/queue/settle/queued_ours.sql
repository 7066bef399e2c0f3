-- Those of some rows that are leased under the token that is named, and what was cancelled of their claims.
-- Index: primary keys. Locks: the rows.
select queued.*, (select cancelled from postrider.claim where claim.token = queued.token)
from unnest($2::bigint[], $3::bigint[]) as said (event_id, token)
cross join lateral (
    select event_id, token, key, late, turn, parks, events, spans
    from postrider.queued
    where subscription_id = $1
        and event_id = said.event_id
        and token = said.token
        and leased
    for update
) as queued
