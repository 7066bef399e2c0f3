-- Gives up a dead letter that holds its lane: the owner lets it leave the lane, since only owners move lanes.
-- Index: primary key. Locks: the writer lock.
update postrider_delivery
set state = 'done',
    due_at = ?3
where subscription_id = ?1
    and event_id = ?2
    and state = 'dead'
    and parks = 1
