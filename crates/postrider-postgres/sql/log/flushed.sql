-- Waits for the WAL to be on disk up to $1: one row if it is. The server looks a thousand times, about 0.1 ms, because
-- one more round trip would take as long. A reader that waits also learns whether it still works for the subscription.
-- Index: primary key of subscription. Locks: none.
select subscription.fence, subscription.paused_at is not null
from (
    select true
    from (select generate_series(1, 1000)) as look
    where pg_current_wal_flush_lsn() >= $1
    limit 1
) as flushed
left join postrider.subscription as subscription on subscription.id = $2
