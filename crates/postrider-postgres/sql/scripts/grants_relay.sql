-- A relay reads the log, delivers, settles, and removes old events. It creates and tunes the subscriptions of its own
-- program, but neither pauses, moves nor deletes any. It fires schedules that others have put, and emits nothing else:
-- what would let it add an event, choose an id or change a payload is done by functions that run as the schema's owner.
--
-- What it is trusted with: it may settle what it has not delivered, and empty leaves of the log.
--
-- Handlers that ack in transactions of their own do it as a relay, or as a role that was given the function `ack` as
-- well.
--
-- Retention empties leaves and the tables of positions as a whole, so that it needs TRUNCATE on these and no other
-- table. A relay ends sessions of relays that are gone by the right that each role has on its own sessions: let all
-- relays of a store log in as one role, and none needs pg_signal_backend.
grant usage on schema "schema_name" to role_name;
grant execute on function postrider.identify, postrider.hold_check, postrider.fire, postrider.ack, postrider.slot_note,
    postrider.leaf_keep, postrider.ring_rotate, postrider.bury
    to role_name;
grant select on postrider.meta, postrider.event, postrider.kept_event, postrider.turn to role_name;
grant select on postrider.subscription, postrider.member, postrider.shard, postrider.standing to role_name;
grant select on postrider.position_a, postrider.position_b, postrider.position_table to role_name;
grant select on postrider.delivery, postrider.attempt, postrider.schedule to role_name;
grant select, delete on postrider.queued to role_name;
grant insert
    (subscription_id, event_id, last_id, virtual_time, token, turn, due_at, tenant, bytes, started, finished, events, rank,
    late, parks, leased, state, key, spans)
    on postrider.queued to role_name;
grant select, insert, delete on postrider.claim, postrider.result to role_name;
grant update (virtual_time, token, due_at, started, finished, parks, leased, state) on postrider.queued to role_name;
grant update (until, rows, rows_left, events_left) on postrider.claim to role_name;
grant update (result, at, progress, percent, progress_at) on postrider.result to role_name;
grant select, insert, update on postrider.queue_front, postrider.queue_pace to role_name;
grant select (event_id) on postrider.idempotency to role_name;
grant select, delete on postrider.superseded to role_name;
grant select, truncate on event_leaves to role_name;
grant select on sequence postrider.event_id_seq to role_name;
grant usage on sequence postrider.position_n, postrider.queued_n to role_name;
grant select, insert, update (id, started_at) on postrider.era to role_name;
grant insert on postrider.member, postrider.shard, postrider.standing to role_name;
grant insert (name, filter, mode, order_rule, on_dead, tuning, shard_count, created_at)
    on postrider.subscription to role_name;
grant insert on postrider.attempt to role_name;
grant insert, truncate on postrider.position_a, postrider.position_b to role_name;
grant insert (subscription_id, event_id, shard, key, late, turn, parks, state, attempts, due_at, died_at)
    on postrider.delivery to role_name;
grant update (shard, key, late, turn, parks, state, attempts, due_at, died_at) on postrider.delivery to role_name;
grant update (tuning, fence) on postrider.subscription to role_name;
grant update (beat_at, steady_since) on postrider.member to role_name;
grant update (member_id, epoch) on postrider.shard to role_name;
grant update (current, switched_at) on postrider.position_table to role_name;
grant update (started_at, took, member, error) on postrider.attempt to role_name;
grant delete on postrider.kept_event, postrider.idempotency, postrider.member to role_name;
grant delete on postrider.delivery, postrider.attempt to role_name;
grant select, insert, delete on postrider.new_slot to role_name;
grant select, insert, update on postrider.switch to role_name;
