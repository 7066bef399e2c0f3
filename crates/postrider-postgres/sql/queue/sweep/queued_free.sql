-- Makes rows ready again whose lease is gone. No claim looks below the front. Index: primary keys. Locks: the rows,
-- which are locked already.
update postrider.queued as queued
set leased = false,
    virtual_time = greatest(
        queued.virtual_time,
        (select front from postrider.queue_front as front where front.subscription_id = $1 and front.rank = queued.rank)
    )
where queued.subscription_id = $1
    and queued.event_id = any($2)
returning queued.rank, queued.virtual_time
