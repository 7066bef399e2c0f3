-- A look at the log's end: the sequence, then the next xid, then how far the WAL has come. The statement's own snapshot
-- was taken before all of these. The transaction must have no xid and must not have looked before: the next xid is
-- frozen within one. A reader that works for a subscription also learns whether it still may.
--
-- The sequence must be read by pg_sequence_last_value, which locks its page. A plain select does not, and at every 32nd
-- draw the row says for a moment that 32 more were drawn, which is what goes into the WAL: a reader that believes it
-- passes over the events of these ids for good. Index: primary key of subscription. Locks: the sequence's page, for an
-- instant, and as producers do; it assigns no xid and writes no WAL.
select log.last_value, age('3'::xid), pg_current_snapshot(), log.inserted, pg_current_wal_flush_lsn(),
    subscription.fence, subscription.paused_at is not null
from (
    select coalesce(pg_sequence_last_value('postrider.event_id_seq'), 0) as last_value,
        pg_current_wal_insert_lsn() as inserted
    offset 0
) as log
left join postrider.subscription as subscription on subscription.id = $1::bigint
