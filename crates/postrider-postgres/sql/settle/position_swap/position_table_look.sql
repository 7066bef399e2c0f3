-- Which of the two tables is written, for how long, how many rows it has up to a limit of $1, and whether the other one
-- is empty. A clock that was set back makes it time too.
-- Index: primary keys. Locks: none.
select
    place.current = 'a',
    abs(extract(epoch from postrider.clock() - place.switched_at))::double precision,
    case
        when place.current = 'a' then (
            select count(*) from (select from postrider.position_a limit $1) as rows_a
        )
        else (select count(*) from (select from postrider.position_b limit $1) as rows_b)
    end,
    case
        when place.current = 'a' then not exists (select from postrider.position_b)
        else not exists (select from postrider.position_a)
    end
from postrider.position_table as place
