-- Makes the table of a receiver's own database that remembers which events it has handled.
-- Index: none yet. Locks: the writer lock.
create table if not exists postrider_inbox (
    receiver text not null,
    dedup_id text not null,
    taken_at integer not null default (unixepoch()),
    primary key (receiver, dedup_id)
) strict, without rowid
