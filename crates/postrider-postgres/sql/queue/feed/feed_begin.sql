-- Sets up the transaction of a feed. Its statements take a few short arrays, and the server would plan them again at
-- every call, because it estimates a plan for ten elements as dearer than one for two: that was 0.4 ms of each feed's
-- 1.1. If it claims ($1), it counts as committed only when it is flushed, whatever its session says. Index: none.
-- Locks: none.
select set_config('plan_cache_mode', 'force_generic_plan', true),
    case
        when $1 and current_setting('synchronous_commit') = 'off' then set_config('synchronous_commit', 'on', true)
    end
