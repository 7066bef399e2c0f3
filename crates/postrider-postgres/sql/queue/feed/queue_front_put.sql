-- Makes ranks known that have not been used before.
-- Index: primary key. Locks: the new rows.
insert into postrider.queue_front (subscription_id, rank, front)
select $1, rank, 0
from unnest($2::smallint[]) as used (rank)
on conflict do nothing
