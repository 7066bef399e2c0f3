-- The greatest id that was ever handed out, pruned or not.
-- Index: none; sqlite_sequence has a row for each table. Locks: none.
select seq
from sqlite_sequence
where name = 'postrider_event'
