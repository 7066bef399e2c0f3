-- Creates a subscription; its shards and its position follow in the same transaction.
-- Index: primary key and subscription_names_are_unique. Locks: the row; retention's lock is held.
insert into postrider.subscription
    (name, filter, mode, order_rule, on_dead, tuning, shard_count, created_at)
values ($1, $2, $3, $4, $5, $6, $7, postrider.clock())
returning id, name, filter, mode, order_rule, on_dead, tuning, created_at, paused_at
