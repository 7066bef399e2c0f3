-- Waits for the WAL to be on disk up to $1: one row if it is. The server looks a thousand times, about 0.1 ms,
-- which is what asking it once more would take on the way alone.
-- Index: none. Locks: none.
select true
from (select generate_series(1, 1000)) as look
where pg_current_wal_flush_lsn() >= $1
limit 1
