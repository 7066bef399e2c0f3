-- How far messages were stored, by which prefix they are known, and whether they may be written (see message_until).
-- Index: none. Locks: the sequence's page, for an instant.
select source.prefix, source.stored_lsn, source.part_lsn, source.part_count,
    (select last_value from postrider.message_until)
from postrider.message_source as source
