-- Ends turn $1: the log goes on in the next leaf, if that is empty. Whether it was ended.
-- Index: primary key of turn. Locks: none that producers wait for; retention's lock is held.
select postrider.ring_rotate($1)
