-- Drops the records of attempts that are too many.
-- Index: primary key. Locks: the rows.
delete from postrider.attempt as attempt
using unnest($2::bigint[], $3::integer[]) as old (event_id, last)
where attempt.subscription_id = $1
    and attempt.event_id = old.event_id
    and attempt.attempt <= old.last
