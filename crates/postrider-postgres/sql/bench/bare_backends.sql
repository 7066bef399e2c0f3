-- The processes that work for stores of this database.
-- Index: none. Locks: none.
select pid
from pg_stat_activity
where datname = current_database()
    and application_name like 'postrider/%'
