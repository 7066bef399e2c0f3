-- Lets this transaction count as committed only when it is flushed, whatever its session says.
-- Index: none. Locks: none.
select set_config('synchronous_commit', 'on', true)
where current_setting('synchronous_commit') = 'off'
