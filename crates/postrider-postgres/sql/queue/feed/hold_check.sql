-- Fails unless an owner still knows how things stand with its subscription; then they stay so until the transaction
-- ends. Index: primary key. Locks: as lock_settle.
select postrider.hold_check($1, $2, $3)
