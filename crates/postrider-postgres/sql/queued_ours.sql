-- Those of some rows that are leased under the token that is named, and what was cancelled of their claims.
-- Index: primary keys. Locks: the rows.
select queued.event_id, queued.token, queued.key, queued.late, queued.parks, queued.events, queued.spans, claim.cancelled
from unnest($2::bigint[], $3::bigint[]) as said (event_id, token)
join postrider.queued as queued
    on queued.subscription_id = $1
    and queued.event_id = said.event_id
    and queued.token = said.token
    and queued.leased
left join postrider.claim as claim on claim.token = queued.token
order by queued.event_id
for update of queued
