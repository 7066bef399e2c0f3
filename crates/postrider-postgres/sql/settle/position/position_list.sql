-- A subscription's positions below $2, newest first: of each shard the first one that names it counts.
-- Index: the primary keys of both tables, backwards. Locks: none.
select n, shards, from_snapshot, to_snapshot, next_xid, seq, bound_xids, bound_seqs, last_id
from (
    (select * from postrider.position_a where subscription_id = $1 and n < $2 order by n desc limit 100)
    union all
    (select * from postrider.position_b where subscription_id = $1 and n < $2 order by n desc limit 100)
) as both_tables
order by n desc
limit 100
