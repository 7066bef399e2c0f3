-- Forgets members whose lease has run out: one that crashed cannot do so itself. Their shards are free by that.
-- Index: none, there are few. Locks: the rows.
delete from postrider.member
where beat_at + lease < postrider.clock()
