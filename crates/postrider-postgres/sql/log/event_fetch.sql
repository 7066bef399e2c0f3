-- The log behind $1 up to $2, less what the snapshot $3 saw. What the window's later snapshot does not see is left
-- out by the reader, which knows every row's xid. Large payloads are fetched by themselves, so that a chunk's size
-- is known before it is sent.
-- Index: the leaf's primary key, in its order. Locks: none.
select xid, id, topic, type, key, case when size <= 32768 then payload end, case when size <= 32768 then payload_bytes end,
    headers, created_at, due_at, lengths, size
from (
    select *
    from postrider.event_cut as event
    where id > $1
        and id <= $2
        and not pg_visible_in_snapshot(xid, $3)
    order by id
    limit $4
) as event
order by id
