-- Dead rows as the server counts them, in the log and in the tables of positions.
-- Index: none. Locks: none.
select coalesce(sum(n_dead_tup) filter (where relname ~ '^event'), 0)::bigint,
    coalesce(sum(n_dead_tup) filter (where relname ~ '^position'), 0)::bigint
from pg_stat_user_tables
where schemaname = 'postrider'
