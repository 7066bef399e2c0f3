-- Claims whose lease has run out, and such as were made by another clock: before the machine was restarted.
-- Index: none; a row is a claim that is being worked on. Locks: none.
select token
from postrider_claim
where subscription_id = ?1
    and (until_us <= ?2 or until_us - 2 * lease_us > ?2)
order by until_us, token
