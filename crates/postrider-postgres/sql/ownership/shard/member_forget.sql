-- Forgets those of some members whose lease has run out in the eyes of member $2.
-- Index: primary key. Locks: the rows, so that a beat comes before it or is refused.
delete from postrider.member
where id = any($1::bigint[])
    and not postrider.lives(beat_at, lease, (select steady_since from postrider.member where id = $2))
