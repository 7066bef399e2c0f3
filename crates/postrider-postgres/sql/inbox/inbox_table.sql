-- Makes the table of a receiver's own database that remembers which events it has handled.
-- Index: makes its primary key. Locks: the table, if it is new.
create table if not exists postrider_inbox (
    receiver text not null,
    dedup_id text not null,
    taken_at timestamptz not null default pg_catalog.clock_timestamp(),
    primary key (receiver, dedup_id)
)
