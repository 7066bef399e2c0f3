-- Removes what is recorded of an event's attempts, for all subscriptions.
-- Index: primary key, once for each subscription. Locks: the writer lock.
delete from postrider_attempt
where subscription_id in (select id from postrider_subscription)
    and event_id = ?1
