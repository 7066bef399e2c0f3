-- Forgets ids that an inbox has seen long ago, oldest first, some at a time.
-- Index: that of the ids by time, then the primary key. Locks: the writer lock.
delete from inbox_seen
where dedup_id in (
    select dedup_id
    from inbox_seen
    where seen_at < unixepoch() - ?1
    order by seen_at
    limit ?2
)
