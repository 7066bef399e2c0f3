-- The log as a plain table: the same columns without the transaction's number, one index, no leaves, nothing checked.
-- Index: none. Locks: none that anybody waits for.
create table if not exists postrider_bench.event (
    id bigint generated always as identity primary key,
    created_at timestamptz not null default clock_timestamp(),
    due_at timestamptz,
    topic text not null,
    type text,
    key text,
    headers json,
    payload json,
    payload_bytes bytea
)
