-- A look at the log's end: the sequence, then the next xid, then how far the WAL has come. The statement's own
-- snapshot was taken before all of these. It must be a transaction of its own: the next xid is frozen within one.
-- Whoever works for a subscription learns on the way whether it still may.
-- Index: primary key of subscription. Locks: none; it assigns no xid and writes no WAL.
select log.last_value, log.is_called, age('3'::xid), pg_current_snapshot(), pg_current_wal_insert_lsn(),
    pg_current_wal_flush_lsn(), subscription.fence, subscription.paused_at is not null
from postrider.event_id_seq as log
left join postrider.subscription as subscription on subscription.id = $1::bigint
