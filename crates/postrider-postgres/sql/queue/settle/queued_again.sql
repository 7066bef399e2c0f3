-- Puts rows back that are ours: for another attempt, at once or after a while, for which they leave their lanes if keys
-- have no order ($5). No claim looks below the front. Index: primary keys. Locks: the rows, which are ours already.
update postrider.queued as queued
set leased = false,
    started = queued.started - case when said.failed then 0 else 1 end,
    finished = queued.finished + case when said.failed then 1 else 0 end,
    state = case when said.after > interval '0' then 'd' else 'r' end,
    due_at = case when said.after > interval '0' then postrider.clock() + said.after end,
    parks = queued.parks and not ($5 and said.after > interval '0'),
    virtual_time = greatest(
        queued.virtual_time,
        (select front from postrider.queue_front as front where front.subscription_id = $1 and front.rank = queued.rank)
    )
from unnest($2::bigint[], $3::interval[], $4::boolean[]) as said (event_id, after, failed)
where queued.subscription_id = $1
    and queued.event_id = any($2)
    and queued.event_id = said.event_id
returning queued.rank, queued.virtual_time
