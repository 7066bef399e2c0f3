-- A transaction that is open and has a smaller number than $1, in words; null if there is none.
-- Index: none. Locks: none.
select case when pg_snapshot_xmin(pg_current_snapshot()) <= $1::xid8 then coalesce(
    (
        select 'pid ' || activity.pid
        from pg_catalog.pg_stat_activity as activity
        where activity.backend_xid is not null
        order by activity.xact_start
        limit 1
    ),
    (select 'prepared as ' || prepared.gid from pg_catalog.pg_prepared_xacts as prepared order by prepared.prepared limit 1),
    'it has just ended'
) end
