-- Drops the records of attempts that are too many.
-- Index: primary key. Locks: the writer lock.
delete from postrider_attempt
where subscription_id = ?1
    and event_id = ?2
    and attempt <= ?3
