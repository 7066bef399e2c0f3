-- The blocks among whose events one may be, nearest first: they begin before it, and end at it or behind it. Index:
-- postrider_queued_block, as far back as the widest block reaches, which postrider_queued_reach says. Locks: none.
select
    event_id, spans, bytes, rank, virtual_time, tenant, key, late, turn, parks, state, due_at, token, started, finished,
    edited_payload
from postrider_queued indexed by postrider_queued_block
where subscription_id = ?1
    and spans is not null
    and event_id < ?2
    and event_id >= ?2 - (
        select reach
        from postrider_queued indexed by postrider_queued_reach
        where subscription_id = ?1
            and spans is not null
        order by reach desc
        limit 1
    )
    and last_id >= ?2
order by event_id desc
