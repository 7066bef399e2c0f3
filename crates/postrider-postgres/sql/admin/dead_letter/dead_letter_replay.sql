-- Sends dead letters round again. One that holds its lane stays its head; any other goes to the end, behind all that
-- was emitted ($3), or in a late lane behind all that has come due.
-- Index: primary key. Locks: the rows; the locks of their subscriptions are held.
with now as materialized (select postrider.clock() as at)
update postrider.delivery as delivery
set state = 'pending',
    attempts = 0,
    due_at = now.at,
    died_at = null,
    turn = case
        when delivery.parks then delivery.turn
        when delivery.late then (extract(epoch from now.at) * 1000000)::bigint
        else $3
    end
from now
cross join unnest($1::bigint[], $2::bigint[]) as letter (subscription_id, event_id)
where delivery.subscription_id = letter.subscription_id
    and delivery.event_id = letter.event_id
    and delivery.state = 'dead'
returning delivery.subscription_id, delivery.event_id
