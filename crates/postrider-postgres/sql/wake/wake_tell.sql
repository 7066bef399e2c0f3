-- Wakes all relays that sleep when the transaction commits, unless the server's queue is filling up. Index:
-- pg_trigger's own. Locks: the server's notification queue at commit.
select pg_notify(concat('postrider_', tgrelid), '')
from pg_catalog.pg_trigger
where tgrelid = 'postrider.event'::regclass
    and tgname = 'wake'
    and pg_notification_queue_usage() < 0.5
