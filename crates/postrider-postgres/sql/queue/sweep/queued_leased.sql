-- Those of some rows that are leased under a token; rows that another transaction has locked are passed over. Index:
-- primary key. Locks: the rows.
select event_id, key, late, turn, parks, spans
from postrider.queued
where subscription_id = $1
    and event_id = any($2)
    and token = $3
    and leased
for update skip locked
