-- Forgets who stood for a subscription, or for which ones a member stood.
-- Index: none; the table is small. Locks: the writer lock.
delete from postrider_standing
where subscription_id = ?1
    or member_id = ?2
