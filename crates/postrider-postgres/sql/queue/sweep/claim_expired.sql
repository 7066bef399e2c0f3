-- Claims of a subscription whose lease has run out. Index: none: there are as many claims as are in somebody's hands.
-- Locks: the claims; those that are in somebody's hands are passed over.
select token, rows, cancelled
from postrider.claim
where subscription_id = $1
    and until <= postrider.clock()
order by token
limit $2
for update skip locked
