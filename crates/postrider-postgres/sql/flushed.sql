-- Waits for the WAL to be on disk up to $1: one row if it is. The server looks a few thousand times, about 0.3 ms,
-- which is what a flush takes: asking it once and again takes twice as long to notice, and no less of its time.
-- Index: none. Locks: none.
select true
from (select generate_series(1, 3000)) as look
where pg_current_wal_flush_lsn() >= $1
limit 1
