-- Sets the payload that a replay will deliver.
-- Index: primary key. Locks: the row; the subscription's lock is held.
update postrider.delivery
set edited_payload = $3,
    edited_payload_bytes = $4
where subscription_id = $1
    and event_id = $2
    and state = 'dead'
