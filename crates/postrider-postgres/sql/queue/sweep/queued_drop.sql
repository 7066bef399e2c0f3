-- Removes rows.
-- Index: primary key. Locks: the rows.
delete from postrider.queued
where subscription_id = $1
    and event_id = any($2)
