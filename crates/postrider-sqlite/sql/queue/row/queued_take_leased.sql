-- Takes a queued row out, if it is leased under this token: the fence of everything that is done for its holder.
-- Index: primary key. Locks: the writer lock.
delete from postrider_queued
where subscription_id = ?1
    and event_id = ?2
    and state = 'leased'
    and token = ?3
returning
    event_id, spans, bytes, rank, virtual_time, tenant, key, late, turn, parks, state, due_at, token, started, finished,
    edited_payload
