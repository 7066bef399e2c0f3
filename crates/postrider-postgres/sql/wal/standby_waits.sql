-- Whether commits wait for standbys.
-- Index: none. Locks: none.
select current_setting('synchronous_standby_names') <> ''
