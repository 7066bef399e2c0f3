-- The slots of the store in schema $1, how much of its log the server keeps for each, and whose transaction is the
-- oldest. Index: none. Locks: none.
select slot.slot_name::text,
    slot.active,
    coalesce(slot.wal_status, 'reserved'),
    coalesce(pg_wal_lsn_diff(pg_current_wal_insert_lsn(), slot.restart_lsn), 0)::bigint,
    (
        select activity.pid
        from pg_catalog.pg_stat_activity as activity
        where activity.backend_xid is not null
            and activity.pid <> pg_backend_pid()
        order by activity.xact_start
        limit 1
    )
from pg_catalog.pg_replication_slots as slot
where slot.database = current_database()
    and slot.plugin = 'pgoutput'
    and slot.slot_name::text in (
        select $1::text || '_' || base.oid
        from pg_catalog.pg_database as base
        where base.datname = current_database()
    )
order by 1
