-- Makes dead letters of the single events of rows that are ours. What holds its lane parks it.
-- Index: primary keys. Locks: the rows, which are ours already.
select postrider.bury($1, $2, $3, $4)
