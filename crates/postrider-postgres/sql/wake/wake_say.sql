-- Sends a word to those who listen for wakes, unless the server's queue is filling up.
-- Index: none. Locks: the server's notification queue at commit.
select pg_notify(concat('postrider_', 'postrider.event'::regclass::oid), $1::text)
where pg_notification_queue_usage() < 0.5
