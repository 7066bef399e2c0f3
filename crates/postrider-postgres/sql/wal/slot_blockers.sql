-- Who keeps a slot from being created: transactions that have written something and have not ended.
-- Index: none. Locks: none.
select pid, coalesce(datname, ''), coalesce(state, ''),
    extract(epoch from clock_timestamp() - xact_start)::double precision
from pg_catalog.pg_stat_activity
where backend_xid is not null
    and pid <> pg_backend_pid()
order by xact_start
limit 3
