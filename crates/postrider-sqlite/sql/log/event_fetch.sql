-- Reads on in the log. Rows are stepped until the caller has enough; there is no limit to plan for. The connection's
-- limit on the length of a value keeps it from loading what is far too large; then `event_fetch_cut` reads instead.
-- Index: primary key. Locks: none; the snapshot ends with the call.
select id, topic, type, key, payload, headers, created_at, due_at
from postrider_event
where id > ?1
order by id
