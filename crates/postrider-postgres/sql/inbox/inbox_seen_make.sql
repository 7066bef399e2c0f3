-- Makes the table of the deduplication ids that an inbox has seen. `inbox_seen` stands for its name.
-- Index: makes its primary key. Locks: the new table.
create table inbox_seen (
    dedup_id text primary key,
    seen_at timestamptz not null default pg_catalog.clock_timestamp()
)
