-- Which of some events are superseded: a newer one has taken over their idempotency key.
-- Index: primary key. Locks: none.
select event_id
from postrider.superseded
where event_id = any($1)
