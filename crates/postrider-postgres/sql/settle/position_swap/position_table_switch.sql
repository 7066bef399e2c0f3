-- Lets the other table be written from now on.
-- Index: none, there is one row. Locks: the row; retention's lock is held.
update postrider.position_table
set current = case current when 'a' then 'b' else 'a' end,
    switched_at = postrider.clock()
