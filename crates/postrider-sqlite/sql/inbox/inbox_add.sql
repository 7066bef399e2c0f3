-- Adds an event to an inbox.
-- Index: the rowid grows. Locks: the writer lock.
insert into inbox_event (dedup_id, id, topic, type, key, payload, headers, created_at, subscription)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
