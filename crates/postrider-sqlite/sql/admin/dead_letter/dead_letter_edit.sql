-- Sets the payload that a replay will deliver.
-- Index: primary key. Locks: the writer lock.
update postrider_delivery
set edited_payload = ?3
where subscription_id = ?1
    and event_id = ?2
    and state = 'dead'
