-- Lets ids be found that were seen long ago. `inbox_index` stands for its name.
-- Index: makes one. Locks: the writer lock.
create index if not exists inbox_index on inbox_seen (seen_at)
