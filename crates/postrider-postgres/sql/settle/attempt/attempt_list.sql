-- What happened at the last attempts of some deliveries, newest first. A replay starts counting attempts again, so time
-- decides. Index: primary key. Locks: none.
select recent.*
from unnest($1::bigint[], $2::bigint[]) as wanted (subscription_id, event_id)
cross join lateral (
    select
        attempt.subscription_id, attempt.event_id, attempt.attempt, attempt.started_at, attempt.took, attempt.member,
        attempt.error
    from postrider.attempt as attempt
    where attempt.subscription_id = wanted.subscription_id
        and attempt.event_id = wanted.event_id
    order by attempt.started_at desc, attempt.attempt desc
    limit $3
) as recent
