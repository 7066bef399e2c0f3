-- A subscription's rows that end above a position.
-- Index: primary key; it walks the subscription's rows. Locks: the rows; the subscription's lock is held.
select event_id, token, leased, events, spans
from postrider.queued as queued
where subscription_id = $1
    and last_id > $2
    and not exists (select from postrider.kept_event as kept where kept.id = queued.event_id)
for update
