-- Forgets those of some members whose lease has run out.
-- Index: primary key. Locks: the rows, so that a beat comes before it or is refused.
delete from postrider.member
where id = any($1::bigint[])
    and not postrider.lives(beat_at, lease)
