-- How many relays of this store stand sentry.
-- Index: none. Locks: none.
select count(*)
from pg_catalog.pg_locks
where locktype = 'advisory'
    and classid = 'postrider.event'::regclass::oid
    and objid = 0
    and objsubid = 2
    and mode = 'ExclusiveLock'
    and granted
