-- A producer emits, and does nothing else.
--
-- The columns xid and id are left out on purpose. A log is read without loss because each row's xid is fetched before
-- its id is drawn; whoever could write them could make events invisible. Ids may be read, for `returning id`; nothing
-- else may, not even one's own payloads. Leaves and the sequence need no grant. Libraries that name `id` use the view `outbox`, of which
-- nothing can be read but what was just inserted.
--
-- Who the store is may be known, so that a program can open it before it emits.
grant usage on schema "schema_name" to role_name;
grant insert (topic, type, key, payload, headers, due_at), select (id) on postrider.event to role_name;
grant insert, select on postrider.outbox to role_name;
grant execute on function postrider.emit, postrider.emit_message, postrider.identify to role_name;
grant select on postrider.meta to role_name;
