-- The table that benchmarks compare with: the columns of the log, nothing checked.
-- Index: primary key. Locks: the writer lock.
create table if not exists bare_event (
    id integer primary key autoincrement,
    topic text not null,
    type text,
    key text,
    payload blob,
    headers text,
    created_at integer not null,
    due_at integer
)
