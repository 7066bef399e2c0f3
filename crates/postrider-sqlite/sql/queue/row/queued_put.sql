-- Puts a queued row in.
-- Index: primary key; the row enters one or two of the partial indexes. Locks: the writer lock.
insert into postrider_queued
    (subscription_id, event_id, last_id, spans, events, bytes, rank, virtual_time, tenant, key, late, turn, parks, state,
    due_at, token, started, finished, edited_payload)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)
