-- Forgets events that were handled long ago, oldest first, some at a time.
-- Index: postrider_inbox_taken_at, then the primary key. Locks: the writer lock.
delete from postrider_inbox
where (receiver, dedup_id) in (
    select receiver, dedup_id
    from postrider_inbox
    where taken_at < unixepoch() - ?1
    order by taken_at
    limit ?2
)
