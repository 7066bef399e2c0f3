-- Stops hand-out. A second pause keeps the time of the first.
-- Index: primary key. Locks: the row; the subscription's lock is held.
update postrider.subscription
set paused_at = postrider.clock(),
    fence = fence + 1
where id = $1
    and paused_at is null
