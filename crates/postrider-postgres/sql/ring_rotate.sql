-- Ends turn $1: the next id is the first one of the next turn, and so of the next leaf. It never goes back, since all
-- ids of the next turn are greater, and happens once, since afterwards the sequence stands in another turn. Within a
-- millionth of the turn's end it is left alone: producers are about to come into the next turn by themselves.
-- Index: primary key of turn. Locks: none that producers wait for; retention's lock is held.
with ended as materialized (
    select last_value as last_id, setval('postrider.event_id_seq', ($1::bigint + 1) << 34, true) as first_id
    from (select pg_sequence_last_value('postrider.event_id_seq') as last_value offset 0) as log
    where last_value >> 34 = $1
        and last_value < (($1 + 1) << 34) - (1 << 14)
)
insert into postrider.turn (turn, last_id, ended_at)
select $1, last_id, postrider.clock()
from ended
on conflict (turn) do nothing
