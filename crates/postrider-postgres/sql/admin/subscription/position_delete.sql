-- Forgets a subscription's positions, when it is deleted.
-- Index: primary keys. Locks: the rows.
with gone as (delete from postrider.position_a where subscription_id = $1)
delete from postrider.position_b
where subscription_id = $1
