-- Events that wait for whoever stores messages, if they have waited for longer than a minute: how many, and how many minutes.
-- Index: none. Locks: none.
select count(*), (extract(epoch from postrider.clock() - min(created_at)) / 60)::bigint
from postrider.waiting_event
having min(created_at) < postrider.clock() - interval '1 minute'
