-- Lets what is old be found.
-- Index: makes one. Locks: the writer lock.
create index if not exists postrider_inbox_taken_at on postrider_inbox (taken_at)
