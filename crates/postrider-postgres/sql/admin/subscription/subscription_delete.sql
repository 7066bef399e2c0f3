-- Removes a subscription; its shards, deliveries and attempts go with it, its positions in the same transaction.
-- Index: primary keys. Locks: the rows; retention's lock and the subscription's are held.
delete from postrider.subscription
where id = $1
