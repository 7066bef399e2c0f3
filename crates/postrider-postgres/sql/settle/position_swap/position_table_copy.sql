-- Takes over from the old table what still counts: the rows that are the newest for some shard of a subscription that
-- exists. A row is not if the newer ones of its subscription, wherever they are, name all of its shards.
-- Index: primary keys, it reads both tables. Locks: the new rows; the old table's lock is held.
insert into postrider.position_new
    (subscription_id, n, shards, from_snapshot, to_snapshot, next_xid, seq, bound_xids, bound_seqs, last_id, at)
select old.subscription_id, old.n, old.shards, old.from_snapshot, old.to_snapshot, old.next_xid, old.seq, old.bound_xids,
    old.bound_seqs, old.last_id, old.at
from postrider.position_old as old
join (
    select subscription_id, n, shards,
        bit_or(shards) over (
            partition by subscription_id
            order by n desc
            rows between unbounded preceding and 1 preceding
        ) as newer
    from (
        select subscription_id, n, shards from postrider.position_old
        union
        select subscription_id, n, shards from postrider.position_new
    ) as both_tables
) as ranked on ranked.subscription_id = old.subscription_id and ranked.n = old.n
where ranked.shards & ~coalesce(ranked.newer, 0) <> 0
    and exists (select from postrider.subscription where id = old.subscription_id)
on conflict (subscription_id, n) do nothing
