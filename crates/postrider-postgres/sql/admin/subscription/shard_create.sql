-- Adds the shards of a new subscription. No member holds them yet. Index: primary key. Locks: the rows.
insert into postrider.shard (subscription_id, shard, member_id, epoch)
select $1, shard, null, 0
from generate_series(0, $2::integer - 1) as shard
