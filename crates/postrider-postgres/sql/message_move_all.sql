-- Moves all events that waited into the log, for whoever has locked their table.
-- Index: waiting_event_lsn. Locks: the rows.
select postrider.message_move('FFFFFFFF/FFFFFFFF', 2147483647)
