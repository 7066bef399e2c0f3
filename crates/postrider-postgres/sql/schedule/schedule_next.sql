-- What time it is, and when the first schedule is due.
-- Index: schedule_next, its first entry. Locks: none.
select postrider.clock(), (
    select min(next_at)
    from postrider.schedule
    where paused_at is null
)
