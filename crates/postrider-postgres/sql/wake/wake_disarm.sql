-- Gives the lock back: from now on producers do not notify. It writes nothing, so that no reader has to wait until it
-- is on disk. Index: none. Locks: none.
select pg_advisory_unlock('postrider.event'::regclass::oid::integer, 0),
    set_config('idle_session_timeout', '0', false)
