-- Ends the transactions of members that are gone: a process that was stopped in the middle of one keeps the lock of its
-- shards for as long as its connection lasts. Only those that have done nothing for a moment, and only of this same
-- user, whose sessions it may end.
-- Index: none. Locks: none.
select pg_terminate_backend(session.pid)
from unnest($2::bigint[]) as gone (member_id)
join pg_catalog.pg_locks as held on held.objid = (gone.member_id % 2147483647)::oid
join pg_catalog.pg_stat_activity as session on session.pid = held.pid
where held.locktype = 'advisory'
    and held.mode = 'ShareLock'
    and held.granted
    and held.database = (select oid from pg_catalog.pg_database where datname = current_database())
    and held.classid = (('postrider.shard'::regclass::oid::bigint + $1::bigint * 7919) % 2147483647)::oid
    and held.objsubid = 2
    and session.usename = current_user
    and session.state like 'idle in transaction%'
    and session.state_change < clock_timestamp() - interval '100 milliseconds'
