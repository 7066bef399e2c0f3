-- Ends a pause.
-- Index: primary key. Locks: the row; the subscription's lock is held.
update postrider.subscription
set paused_at = null,
    fence = fence + 1
where id = $1
    and paused_at is not null
