-- Ends the transactions of owners that are gone: a process that was stopped in the middle of one keeps the
-- subscription's lock for as long as its connection lasts. Only those that have done nothing for a moment, and only of
-- this same user, whose sessions it may end.
-- Index: none. Locks: none.
select pg_terminate_backend(session.pid)
from pg_catalog.pg_locks as held
join pg_catalog.pg_stat_activity as session on session.pid = held.pid
where held.locktype = 'advisory'
    and held.mode = 'ShareLock'
    and held.granted
    and held.database = (select oid from pg_catalog.pg_database where datname = current_database())
    and held.classid = 'postrider.shard'::regclass::oid
    and held.objid = $1::bigint::oid
    and held.objsubid = 1
    and session.usename = current_user
    and session.state like 'idle in transaction%'
    and session.state_change < clock_timestamp() - interval '100 milliseconds'
