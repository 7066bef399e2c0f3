-- Tells all listeners a number when the transaction commits.
-- Index: none. Locks: the server's notification queue at commit.
select pg_notify('postrider_bare', $1)
