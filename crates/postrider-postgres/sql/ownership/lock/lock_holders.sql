-- Who holds advisory locks of this store: those who keep others from some, and those who have no business with them,
-- since none of its roles is theirs. The last column says which. Index: none. Locks: none.
with key as (
    select 1::smallint as kind, class.oid::bigint as class
    from unnest(array['postrider.shard'::regclass, 'postrider.position_table'::regclass, 'postrider.meta'::regclass])
        as class (oid)
    union all
    select 2::smallint, (class.oid::bigint + subscription.id * 7919) % 2147483647
    from unnest(array['postrider.shard'::regclass, 'postrider.queued'::regclass, 'postrider.claim'::regclass])
        as class (oid)
    cross join postrider.subscription as subscription
),
holder as (
    select session.pid, session.usename, session.application_name, bool_or(lock.mode = 'ExclusiveLock') as alone,
        not has_function_privilege(session.usesysid, 'postrider.ack'::regproc::oid, 'execute')
        and not has_function_privilege(session.usesysid, 'postrider.audit_put'::regproc::oid, 'execute') as is_foreign
    from pg_catalog.pg_locks as lock
    join key on key.kind = lock.objsubid and key.class = lock.classid::bigint
    join pg_catalog.pg_stat_activity as session on session.pid = lock.pid
    where lock.locktype = 'advisory'
        and lock.granted
        and lock.database = (select oid from pg_catalog.pg_database where datname = current_database())
        and lock.pid <> pg_backend_pid()
        and session.usesysid is not null
    group by session.pid, session.usename, session.application_name, session.usesysid
)
select pid, usename::text, application_name, is_foreign
from holder
where alone or is_foreign
order by is_foreign desc, pid
limit 5
