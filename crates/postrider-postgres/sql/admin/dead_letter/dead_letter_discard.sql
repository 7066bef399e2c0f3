-- Gives dead letters up. The row of one that nothing waits for goes; one that holds its lane is left to the owner to
-- let it leave, since only owners move lanes. Index: primary key. Locks: the rows; the locks of their subscriptions are
-- held.
with
letter as (
    select *
    from unnest($1::bigint[], $2::bigint[]) as letter (subscription_id, event_id)
),
gone as (
    delete from postrider.delivery as delivery
    using letter
    where delivery.subscription_id = letter.subscription_id
        and delivery.event_id = letter.event_id
        and delivery.state = 'dead'
        and not delivery.parks
    returning delivery.subscription_id, delivery.event_id
),
held as (
    update postrider.delivery as delivery
    set state = 'done',
        due_at = postrider.clock()
    from letter
    where delivery.subscription_id = letter.subscription_id
        and delivery.event_id = letter.event_id
        and delivery.state = 'dead'
        and delivery.parks
    returning delivery.subscription_id, delivery.event_id
)
select subscription_id, event_id
from gone
union all
select subscription_id, event_id
from held
