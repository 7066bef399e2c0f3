-- An operator does what people do with a store: creates, tunes, pauses, moves and deletes subscriptions, edits, replays
-- and discards dead letters, manages schedules, and looks at everything, payloads included. It removes no events and
-- emits none but by a schedule.
--
-- What it does is noted in the audit, under the name that it is logged in as: by the function `audit_put`, and by
-- triggers where it changes tables by SQL of its own. It can neither write other lines nor change one.
grant usage on schema "schema_name" to role_name;
grant execute on function postrider.identify, postrider.audit_put to role_name;
grant select on postrider.meta, postrider.event, postrider.kept_event, postrider.turn to role_name;
grant select on postrider.subscription, postrider.member, postrider.shard, postrider.standing to role_name;
grant select on postrider.position_a, postrider.position_b, postrider.position_table to role_name;
grant select on postrider.delivery, postrider.attempt, postrider.audit, postrider.result to role_name;
grant select, insert, delete on postrider.queued to role_name;
grant update (last_id, virtual_time, events, state, spans) on postrider.queued to role_name;
grant select, delete on postrider.claim to role_name;
grant update (rows, rows_left, events_left, cancelled) on postrider.claim to role_name;
grant select, insert, delete on postrider.queue_front to role_name;
grant select, delete on postrider.queue_pace to role_name;
grant select on event_leaves to role_name;
grant select on sequence postrider.event_id_seq to role_name;
grant usage on sequence postrider.position_n, postrider.queued_n to role_name;
grant insert (name, filter, mode, order_rule, on_dead, tuning, shard_count, created_at)
    on postrider.subscription to role_name;
grant insert on postrider.shard to role_name;
grant insert, delete on postrider.position_a, postrider.position_b to role_name;
grant update (tuning, paused_at, fence) on postrider.subscription to role_name;
grant update (member_id, epoch) on postrider.shard to role_name;
grant update (turn, state, attempts, due_at, died_at, edited_payload, edited_payload_bytes) on postrider.delivery to role_name;
grant delete on postrider.subscription, postrider.delivery to role_name;
grant select, delete on postrider.schedule to role_name;
grant insert
    (name, cron, zone, missed, topic, type, key, payload, payload_bytes, headers, created_at, paused_at, next_at,
    ticked_at)
    on postrider.schedule to role_name;
grant update (paused_at) on postrider.schedule to role_name;
grant select on postrider.switch to role_name;
