-- Removes the queue of a subscription.
-- Index: primary keys. Locks: the rows; the subscription's lock is held.
with
claims as (delete from postrider.claim where subscription_id = $1),
fronts as (delete from postrider.queue_front where subscription_id = $1),
paces as (delete from postrider.queue_pace where subscription_id = $1)
delete from postrider.queued
where subscription_id = $1
