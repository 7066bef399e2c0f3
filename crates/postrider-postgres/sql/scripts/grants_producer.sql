-- A producer emits, and does nothing else.
--
-- The columns xid and id are left out on purpose. A log is read without loss because each row's xid is fetched before
-- its id is drawn; whoever could write them could make events invisible. Ids may be read, for `returning id`; nothing
-- else may, not even one's own payloads. Leaves and the sequence need no grant.
-- `event_emit` and `message_emit` are what the other functions call with their caller's rights.
grant usage on schema "schema_name" to role_name;
grant insert (topic, type, key, payload, payload_bytes, headers, due_at), select (id) on postrider.event to role_name;
grant execute on function postrider.event_emit, postrider.message_emit, postrider.emit_bytes, postrider.emit_message_bytes,
    postrider.emit(text, text, text, anycompatiblenonarray, json, interval, text, timestamptz, interval, boolean),
    postrider.emit(text, text, numeric, anycompatiblenonarray, json, interval, text, timestamptz, interval, boolean),
    postrider.emit(text, text, uuid, anycompatiblenonarray, json, interval, text, timestamptz, interval, boolean),
    postrider.emit_message(text, text, text, anycompatiblenonarray, json),
    postrider.emit_message(text, text, numeric, anycompatiblenonarray, json),
    postrider.emit_message(text, text, uuid, anycompatiblenonarray, json)
    to role_name;
