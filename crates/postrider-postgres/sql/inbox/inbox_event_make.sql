-- Makes the table into which events are delivered, in a receiver's own database. `inbox_event` stands for its name.
-- Index: makes its primary key. Locks: the new table.
create table inbox_event (
    arrival bigint generated always as identity primary key,
    dedup_id text not null,
    id bigint not null,
    topic text not null,
    type text not null,
    key text,
    payload bytea not null,
    headers json not null,
    created_at timestamptz not null,
    received_at timestamptz not null default pg_catalog.clock_timestamp(),
    subscription text not null
)
