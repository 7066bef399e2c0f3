-- What time it is, on the one clock that everything goes by.
-- Index: none. Locks: none.
select postrider.clock()
