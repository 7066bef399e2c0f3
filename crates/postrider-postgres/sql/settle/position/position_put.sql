-- Appends a position to the table that is written now.
-- Index: primary key. Locks: none that anybody waits for, but the truncation of a table.
with
place as (select current from postrider.position_table),
a as (
    insert into postrider.position_a
        (subscription_id, n, shards, from_snapshot, to_snapshot, next_xid, seq, bound_xids, bound_seqs, last_id, at)
    select $1, pg_catalog.nextval('postrider.position_n'::regclass), $2, $3, $4, $5, $6, $7, $8, $9, postrider.clock()
    from place
    where current = 'a'
)
insert into postrider.position_b
    (subscription_id, n, shards, from_snapshot, to_snapshot, next_xid, seq, bound_xids, bound_seqs, last_id, at)
select $1, pg_catalog.nextval('postrider.position_n'::regclass), $2, $3, $4, $5, $6, $7, $8, $9, postrider.clock()
from place
where current = 'b'
