-- Lets ids be found that were seen long ago.
-- Index: makes one. Locks: the table, which is new.
create index on inbox_seen (seen_at)
