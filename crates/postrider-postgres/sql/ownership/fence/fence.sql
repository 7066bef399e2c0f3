-- Whether anything has changed about a subscription's owners or its pause since its owner last looked.
-- Index: primary key. Locks: none of its own; a settle holds the subscription's lock already.
select fence, paused_at is not null
from postrider.subscription
where id = $1
