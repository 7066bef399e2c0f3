-- Writes down who destroyed or skipped what.
-- Index: primary key. Locks: the writer lock.
insert into postrider_audit (at, actor, action, subscription, event_id, detail)
values (?1, coalesce(nullif(?2, ''), 'unknown'), ?3, ?4, ?5, ?6)
