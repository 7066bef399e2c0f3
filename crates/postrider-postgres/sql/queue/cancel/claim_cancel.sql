-- Notes that an event of a claim is not wanted any more.
-- Index: primary key. Locks: the claim.
update postrider.claim
set cancelled = array_append(cancelled, $2)
where token = $1
