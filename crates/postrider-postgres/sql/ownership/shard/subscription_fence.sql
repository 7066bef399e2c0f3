-- Makes every owner look again.
-- Index: primary key. Locks: the row; the subscription's lock is held.
update postrider.subscription
set fence = fence + 1
where id = $1
returning fence, paused_at is not null
