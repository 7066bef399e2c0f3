-- The server's era, if it has one. The server's start counts too, because a restored dump contains an era. Index: none,
-- the table has one row. Locks: none.
select id::text
from postrider.era
where started_at = pg_postmaster_start_time()
