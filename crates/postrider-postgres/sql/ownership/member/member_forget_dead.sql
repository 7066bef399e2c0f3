-- Forgets members whose lease has run out: one that crashed cannot do so itself. Their shards are free by that.
-- Index: none, there are few. Locks: the rows.
delete from postrider.member
where not postrider.lives(beat_at, lease, null)
