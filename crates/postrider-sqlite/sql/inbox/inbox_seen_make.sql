-- Makes the table of the deduplication ids that an inbox has seen. `inbox_seen` stands for its name.
-- Index: the table is its primary key. Locks: the writer lock.
create table if not exists inbox_seen (
    dedup_id text primary key,
    seen_at integer not null default (unixepoch())
) strict, without rowid
