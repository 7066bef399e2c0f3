-- Lets heads wait that a lower limit of keys has no room for. What is leased comes first, and what is just being
-- claimed stays. Index: queued_head; it walks the heads of all lanes. Locks: the rows; the buckets of all lanes are
-- held.
with
surplus as materialized (
    select event_id
    from (
        select event_id, leased,
            row_number() over (partition by key, late order by leased desc, turn, event_id) as place
        from postrider.queued
        where subscription_id = $1
            and key is not null
            and parks
            and state <> 'w'
    ) as head
    where not leased
        and place > $2
),
free as materialized (
    select event_id
    from postrider.queued
    where subscription_id = $1
        and event_id = any (array (select event_id from surplus))
        and state = 'r'
        and not leased
    for update skip locked
)
update postrider.queued
set state = 'w'
where subscription_id = $1
    and event_id = any (array (select event_id from free))
