-- Removes all positions; new ones are written in the same transaction.
-- Index: none. Locks: the rows.
with gone as (delete from postrider.position_a)
delete from postrider.position_b
