-- Since when a leaf has been filled, null if it is empty, and what it takes on disk. The end of the last turn counts
-- too: the first event may have got its time from a clock that stood wrong.
-- Index: the leaf's primary key. Locks: none.
select
    least(
        (select created_at from postrider.event_leaf order by id limit 1),
        (select max(ended_at) from postrider.turn where exists (select from postrider.event_leaf))
    ),
    pg_total_relation_size('postrider.event_leaf'::regclass)
