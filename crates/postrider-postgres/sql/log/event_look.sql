-- A look at the log's end and at what lies behind $1 in one of its leaves up to $2, less what the snapshot $3 saw: the
-- probe's columns, then those of a fetch. The probe's are repeated in every row and only those of the first count;
-- without rows there is one with the probe alone. Both are of one snapshot, so that the rows are those of the window
-- that the probe ends. Payloads as in event_fetch.
-- The sequence is the outer side of the joins and so is read first, under its page's lock as in probe.sql; the next xid
-- is looked up when the first row is made, after it.
-- Index: primary key of subscription; the leaf's primary key, in its order. Locks: as in probe.sql.
select log.last_value, age('3'::xid), pg_current_snapshot(), log.inserted, pg_current_wal_flush_lsn(),
    subscription.fence, subscription.paused_at is not null, event.xid, event.id, event.topic, event.type, event.key,
    case when event.size <= 32768 then event.payload end, case when event.size <= 32768 then event.payload_bytes end,
    event.headers, event.created_at, event.due_at, event.lengths, event.size
from (
    select coalesce(pg_sequence_last_value('postrider.event_id_seq'), 0) as last_value,
        pg_current_wal_insert_lsn() as inserted
    offset 0
) as log
left join postrider.subscription as subscription on subscription.id = $5::bigint
left join lateral (
    select *
    from postrider.event_cut as event
    where id > $1
        and id <= $2
        and not pg_visible_in_snapshot(xid, $3)
    order by id
    limit $4
) as event on true
