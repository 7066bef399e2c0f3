-- Takes the sentry's lock, if no process holds it and no emit is under way; else says which of the two it is. A sentry
-- that is silent for the time given, because its process was stopped, is sent away by the server: while it holds the
-- lock, every commit of a producer notifies. Index: pg_trigger's own. Locks: the advisory lock of wakes, until it is
-- given back or the session ends.
select state,
    case state when 'sentry' then set_config('idle_session_timeout', $1::text, false) end
from (
    select case
        when not exists (
            select from pg_catalog.pg_trigger
            where tgrelid = 'postrider.event'::regclass
                and tgname = 'wake'
                and tgenabled in ('O', 'A')
        )
        then 'absent'
        when pg_try_advisory_lock('postrider.event'::regclass::oid::integer, 0)
        then 'sentry'
        when pg_try_advisory_xact_lock_shared('postrider.event'::regclass::oid::integer, 0)
        then 'open'
        else 'guarded'
    end as state
    offset 0
) as found
