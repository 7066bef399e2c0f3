-- Creates a subscription; its shards follow in the same transaction.
-- Index: primary key and subscription_names_are_unique. Locks: the writer lock.
insert into postrider_subscription (name, filter, mode, order_rule, on_dead, tuning, created_at)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7)
