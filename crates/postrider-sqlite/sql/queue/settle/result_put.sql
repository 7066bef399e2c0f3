-- Keeps what a handler wanted to be kept; a later one replaces it.
-- Index: primary key. Locks: the writer lock.
insert into postrider_result (subscription_id, event_id, result)
values (?1, ?2, ?3)
on conflict (subscription_id, event_id) do update
set result = excluded.result
