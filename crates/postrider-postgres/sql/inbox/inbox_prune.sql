-- Forgets events that were handled long ago, oldest first, some at a time.
-- Index: postrider_inbox_taken_at, then the primary key. Locks: the rows that go; others that prune pass over them.
with old as (
    select receiver, dedup_id
    from postrider_inbox
    where taken_at < pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => $1)
    order by taken_at
    limit $2
    for update skip locked
),
gone as (
    delete from postrider_inbox
    using old
    where postrider_inbox.receiver = old.receiver and postrider_inbox.dedup_id = old.dedup_id
    returning 1
)
select pg_catalog.count(*) from gone
