-- Claims of a subscription whose lease has run out. Index: none, because the table holds live claims only. Locks: the
-- claims; claims that another transaction has locked are passed over.
select token, rows, cancelled
from postrider.claim
where subscription_id = $1
    and until <= postrider.clock()
order by token
limit $2
for update skip locked
