-- Writes down what the rate of a queue still allows.
-- Index: primary key. Locks: the writer lock.
insert or replace into postrider_allowance (subscription_id, events, since_us)
values (?1, ?2, ?3)
