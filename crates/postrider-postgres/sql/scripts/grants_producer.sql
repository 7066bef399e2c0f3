-- A producer emits, and does nothing else.
--
-- The columns xid and id are left out on purpose. A log is read without loss because each row's xid is fetched before
-- its id is drawn; a role that could write them could make events invisible. Ids may be read, for `returning id`;
-- nothing else may, not even one's own payloads. Leaves and the sequence need no grant. Libraries that name `id` use
-- the view `outbox`, of which nothing can be read but what was just inserted. `event_emit` is what the other functions
-- call with their caller's rights.
--
-- Who the store is may be known, so that a program can open it before it emits.
grant usage on schema "schema_name" to role_name;
grant insert (topic, type, key, payload, payload_bytes, headers, due_at), select (id) on postrider.event to role_name;
grant insert, select on postrider.outbox to role_name;
grant execute on function postrider.event_emit, postrider.emit_bytes, postrider.identify,
    postrider.emit(text, text, text, anycompatiblenonarray, json, interval, text, timestamptz, interval, boolean),
    postrider.emit(text, text, numeric, anycompatiblenonarray, json, interval, text, timestamptz, interval, boolean),
    postrider.emit(text, text, uuid, anycompatiblenonarray, json, interval, text, timestamptz, interval, boolean)
    to role_name;
grant select on postrider.meta to role_name;
