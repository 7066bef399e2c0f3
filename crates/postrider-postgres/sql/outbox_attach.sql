-- Makes events of the rows of another program's outbox table; how many were made of those that were there.
-- Index: none. Locks: the table against writers, which it waits for and which wait for it.
select postrider.outbox_attach($1::text::regclass, $2, $3, $4, $5, $6, $7, $8, $9)
