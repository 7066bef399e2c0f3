-- Changes what may change at any time.
-- Index: primary key. Locks: the row; the subscription's lock is held.
update postrider.subscription
set tuning = $2
where id = $1
