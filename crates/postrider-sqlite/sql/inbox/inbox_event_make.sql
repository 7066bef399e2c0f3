-- Makes the table into which events are delivered, in a receiver's own database. `inbox_event` stands for its name.
-- Index: its rowid is `arrival`. Locks: the writer lock.
create table if not exists inbox_event (
    arrival integer primary key autoincrement,
    dedup_id text not null,
    id integer not null,
    topic text not null,
    type text not null,
    key text,
    payload blob not null,
    headers text not null,
    created_at integer not null,
    received_at integer not null
        default (cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000),
    subscription text not null
) strict
