-- Removes what was kept of an event, for all subscriptions.
-- Index: primary key, once for each subscription. Locks: the writer lock.
delete from postrider_result
where subscription_id in (select id from postrider_subscription)
    and event_id = ?1
