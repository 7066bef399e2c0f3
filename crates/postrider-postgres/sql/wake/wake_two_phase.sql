-- How many transactions this server lets people prepare.
-- Index: none. Locks: none.
select current_setting('max_prepared_transactions')::integer
