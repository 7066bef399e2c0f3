-- Removes the rows of deliveries that are done.
-- Index: primary key. Locks: the rows.
delete from postrider.delivery
where subscription_id = $1
    and event_id = any($2)
