-- Where the log ends: the last id that was issued, what is visible, and the time.
-- Index: none. Locks: none.
select
    case when is_called then last_value else last_value - 1 end,
    pg_current_snapshot(),
    postrider.clock()
from postrider.event_id_seq
