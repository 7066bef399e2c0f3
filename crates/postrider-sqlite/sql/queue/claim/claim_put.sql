-- Opens a claim; its token is larger than any before.
-- Index: primary key. Locks: the writer lock.
insert into postrider_claim (subscription_id, member_id, lease_us, until_us)
values (?1, ?2, ?3, ?4)
