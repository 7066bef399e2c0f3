-- As event_preview, for those who may not read payloads and headers.
-- Index: primary keys of leaf and kept events. Locks: none.
select
    id,
    topic,
    type,
    key,
    null::json,
    null::bytea,
    null::json,
    created_at,
    due_at,
    null::integer[] as lengths,
    0,
    0,
    false
from postrider.event_leaf
where id = any($1)
union all
select
    id,
    topic,
    type,
    key,
    null::json,
    null::bytea,
    null::json,
    created_at,
    due_at,
    null::integer[] as lengths,
    0,
    0,
    false
from postrider.kept_event
where id = any($1)
