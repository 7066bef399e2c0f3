-- The server's era, if it has one. The server's start is looked at too: whoever restores a dump restores an era.
-- Index: none, the table has one row. Locks: none.
select id::text
from postrider.era
where started_at = pg_postmaster_start_time()
