-- Gives dead letters of queues up.
-- Index: primary key. Locks: the rows; the locks of their subscriptions are held.
delete from postrider.delivery as delivery
using unnest($1::bigint[], $2::bigint[]) as letter (subscription_id, event_id)
where delivery.subscription_id = letter.subscription_id
    and delivery.event_id = letter.event_id
    and delivery.state = 'dead'
returning delivery.subscription_id, delivery.event_id, delivery.key, delivery.late
