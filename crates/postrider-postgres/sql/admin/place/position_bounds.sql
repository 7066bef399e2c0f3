-- What the newest positions say about where the rows of late transactions lie.
-- Index: the primary keys of both tables, backwards, once for each subscription. Locks: none.
select newest.bound_xids, newest.bound_seqs
from (
    select id
    from postrider.subscription
    order by id desc
    limit $1
) as subscription
cross join lateral (
    select bound_xids, bound_seqs
    from (
        (
            select n, bound_xids, bound_seqs
            from postrider.position_a
            where subscription_id = subscription.id
            order by n desc
            limit 1
        )
        union all
        (
            select n, bound_xids, bound_seqs
            from postrider.position_b
            where subscription_id = subscription.id
            order by n desc
            limit 1
        )
    ) as both_tables
    order by n desc
    limit 1
) as newest
