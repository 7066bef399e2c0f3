-- Leaves of a block only what lies before a position.
-- Index: primary key. Locks: the rows.
update postrider.queued
set last_id = $3,
    events = $4,
    spans = $5
where subscription_id = $1
    and event_id = $2
