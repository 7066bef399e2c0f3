-- Moves events that waited for messages before them into the log.
-- Index: waiting_event_lsn. Locks: the rows that are moved.
select postrider.message_move($1, $2)
