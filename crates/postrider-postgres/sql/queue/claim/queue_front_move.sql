-- Stores how far a worker has come with each rank, and returns how far all workers have. Index: primary key. Locks: the
-- rows, for an instant; rows that another transaction has locked are left for the next time.
with moved as (
    update postrider.queue_front as front
    set front = known.low
    from unnest($2::smallint[], $3::bigint[]) as known (rank, low)
    where front.subscription_id = $1
        and front.rank = known.rank
        and front.front < known.low
        and (front.subscription_id, front.rank) in (
            select subscription_id, rank
            from postrider.queue_front
            where subscription_id = $1
            order by rank
            for update skip locked
        )
)
select rank, front
from postrider.queue_front
where subscription_id = $1
order by rank
