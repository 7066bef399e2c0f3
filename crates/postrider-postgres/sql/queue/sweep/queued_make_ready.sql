-- Makes rows ready whose time has come; those with a lane that they had not entered wait in it ($3). No claim looks
-- below the front. Index: primary keys. Locks: the rows, which are locked already.
update postrider.queued as queued
set state = case when queued.event_id = any($3::bigint[]) then 'w' else 'r' end,
    parks = queued.key is not null,
    due_at = null,
    virtual_time = greatest(
        queued.virtual_time,
        (select front from postrider.queue_front as front where front.subscription_id = $1 and front.rank = queued.rank)
    )
where queued.subscription_id = $1
    and queued.event_id = any($2)
returning queued.rank, queued.virtual_time
