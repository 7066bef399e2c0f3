-- Where the log ends: the last id that was issued, what is visible, and the time.
-- Index: none. Locks: the sequence's page, for an instant; see probe.sql.
select coalesce(pg_sequence_last_value('postrider.event_id_seq'), 0), pg_current_snapshot(), postrider.clock()
