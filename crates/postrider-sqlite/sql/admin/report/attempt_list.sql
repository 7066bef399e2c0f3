-- What happened at each attempt, newest first. A replay counts attempts from zero, so time decides.
-- Index: primary key. Locks: none.
select attempt, started_at, took_us, member, error
from postrider_attempt
where subscription_id = ?1
    and event_id = ?2
order by started_at desc, attempt desc
limit ?3
