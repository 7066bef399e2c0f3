-- Ends the one who follows a slot and does not answer any more.
-- Index: none. Locks: none.
select pg_terminate_backend($1)
