-- Takes a dead letter out, to queue its event again or to give it up.
-- Index: primary key. Locks: the writer lock.
delete from postrider_delivery
where subscription_id = ?1
    and event_id = ?2
    and state = 'dead'
returning key, late, turn, parks, edited_payload
