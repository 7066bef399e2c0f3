-- All subscriptions by name, whatever language the database sorts by.
-- Index: none; there are few. Locks: none.
select id, name, filter, mode, order_rule, on_dead, tuning, created_at, paused_at
from postrider.subscription
order by name collate "C"
