-- All subscriptions by name.
-- Index: subscription_names_are_unique. Locks: none.
select id, name, filter, mode, order_rule, on_dead, tuning, created_at, paused_at
from postrider_subscription
order by name
