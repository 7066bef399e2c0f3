-- Leaves an outbox table alone; whether it was not.
-- Index: none. Locks: the table against all others, which it waits for and which wait for it.
select postrider.outbox_detach($1::text::regclass)
