-- Whether a lane has all the heads that it may have: one, or as many as the limit of a key says where keys have no
-- order. Index: primary key of postrider_subscription, then postrider_queued_head. Locks: none.
with most(heads) as (
    select iif(order_rule = 'key', 1, coalesce(json_extract(tuning, '$.queue.per_key'), 9223372036854775807))
    from postrider_subscription
    where id = ?1
)
select (
    select count(*)
    from (
        select 1
        from postrider_queued indexed by postrider_queued_head
        where subscription_id = ?1
            and key = ?2
            and late = ?3
            and parks = 1
            and state <> 'waiting'
        limit (select heads from most)
    )
) >= (select heads from most)
