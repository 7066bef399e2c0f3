-- Leases a row to a claim. That it was begun is known from here on, whatever becomes of its worker.
-- Index: primary key. Locks: the writer lock.
update postrider_queued
set state = 'leased',
    token = ?3,
    started = started + 1
where subscription_id = ?1
    and event_id = ?2
