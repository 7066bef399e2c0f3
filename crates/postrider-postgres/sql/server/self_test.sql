-- How many rows had drawn their id when their first column was computed; and what a sequence's column says beside a
-- function that moves it.
-- Index: none. Locks: none.
select (select count(*) from pg_temp.postrider_self_test where noted <> id - 1), last_value,
    nextval('pg_temp.postrider_self_test_order')
        + case when is_called then 0 else 1 end
from pg_temp.postrider_self_test_order
