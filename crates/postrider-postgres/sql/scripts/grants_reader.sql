-- A reader looks at everything but what events say: no payloads, no headers, no idempotency keys. It changes nothing.
-- Ordering keys, and what handlers wrote into their errors and results, can be read.
grant usage on schema "schema_name" to role_name;
grant execute on function postrider.identify to role_name;
grant select on postrider.meta, postrider.turn to role_name;
grant select on postrider.subscription, postrider.member, postrider.shard, postrider.standing to role_name;
grant select on postrider.position_a, postrider.position_b, postrider.position_table to role_name;
grant select on postrider.attempt, postrider.audit, postrider.result, postrider.claim to role_name;
grant select on postrider.queue_front, postrider.queue_pace to role_name;
grant select (xid, id, created_at, due_at, topic, type, key) on postrider.event, event_leaves to role_name;
grant select (id, created_at, due_at, topic, type, key) on postrider.kept_event to role_name;
grant select
    (subscription_id, event_id, shard, key, late, turn, parks, state, attempts, due_at, died_at)
    on postrider.delivery to role_name;
grant select
    (subscription_id, event_id, last_id, virtual_time, token, turn, due_at, tenant, bytes, started, finished, events, rank,
    late, parks, leased, state, key, spans)
    on postrider.queued to role_name;
grant select (id, name, cron, zone, missed, topic, type, key, created_at, paused_at, next_at, ticked_at)
    on postrider.schedule to role_name;
grant select on sequence postrider.event_id_seq to role_name;
grant select on postrider.switch to role_name;
