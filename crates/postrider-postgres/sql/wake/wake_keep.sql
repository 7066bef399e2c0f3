-- Shows the server that a sentry lives.
-- Index: none. Locks: none.
select
