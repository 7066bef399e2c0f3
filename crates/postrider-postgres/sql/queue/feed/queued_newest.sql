-- The newest virtual time that was given: that of a row, or where those who claim have come to if none is left.
-- Index: primary key of queue_front; it walks the queues' rows, once for each feeder. Locks: none.
select greatest(
    (select max(virtual_time) from postrider.queued where subscription_id = $1),
    (select max(front) from postrider.queue_front where subscription_id = $1)
)
