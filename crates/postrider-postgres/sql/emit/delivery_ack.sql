-- Acks a delivery in its handler's own transaction. A function, since one statement cannot do it: who waits behind the
-- event must be looked for by a later one, which sees what was fed before the lock was free. Index: primary keys, then
-- queued_head and queued_lane. Locks: the row, the bucket of its lane (shared), the row that is next.
select postrider.ack($1, $2, $3, $4)
