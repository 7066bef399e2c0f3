-- Removes a subscription's rows above a position, whose events will be read again, and tells the lanes that lose their
-- head by it. The row of an event whose leaf was emptied stays: its event will not be read again.
-- Index: primary keys. Locks: the rows; the subscription's lock is held.
with gone as (
    delete from postrider.delivery as delivery
    where delivery.subscription_id = $1
        and delivery.event_id > $2
        and not exists (
            select
            from postrider.kept_event as kept
            where kept.id = delivery.event_id
        )
    returning delivery.key, delivery.late, delivery.parks, delivery.state, delivery.due_at
)
select distinct key, late
from gone
where parks
    and (state <> 'pending' or due_at is not null)
