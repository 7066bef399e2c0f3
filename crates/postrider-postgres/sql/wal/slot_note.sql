-- Leaves a line about what was done with a slot.
-- Index: none. Locks: none.
select postrider.slot_note($1, $2)
