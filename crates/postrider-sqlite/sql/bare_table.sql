-- The table that benchmarks compare with: the columns of the log, nothing checked.
-- Index: primary key. Locks: the writer lock.
create table if not exists bare_event (
    id integer primary key autoincrement,
    topic text not null,
    type text not null,
    key text,
    payload blob not null,
    headers text,
    created_at integer not null,
    due_at integer
)
