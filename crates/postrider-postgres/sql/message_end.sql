-- Events are rows as all others from now on, and nothing is known of a slot.
-- Index: primary key. Locks: the row of the source.
update postrider.message_source as source
set stored_lsn = null, part_lsn = null, part_count = 0
where setval('postrider.message_until', 1) = 1
