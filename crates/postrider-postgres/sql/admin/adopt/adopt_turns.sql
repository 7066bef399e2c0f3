-- Makes turns go on behind those that were restored: a sequence may have been left behind.
-- Index: none, it reads all queues and dead letters. Locks: none that last.
select pg_catalog.setval(
    'postrider.queued_n'::regclass,
    greatest(
        (select last_value from postrider.queued_n),
        (select max(turn) from postrider.queued where not late),
        (select max(turn) from postrider.delivery where not late)
    )
)
