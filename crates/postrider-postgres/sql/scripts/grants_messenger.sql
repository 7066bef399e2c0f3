-- A messenger is a relay that also follows the messages of producers (`emit_message`) and writes them into the log. Only the
-- server's write-ahead log says what they were, so that nothing can check it: who has this role may emit anything. It is granted
-- beside the role of a relay, to the login that runs with `messages`.
grant usage on schema "schema_name" to role_name;
grant execute on function postrider.message_store, postrider.message_move, postrider.message_allow to role_name;
grant select on postrider.message_source to role_name;
grant select on sequence postrider.message_until to role_name;
grant select (id, lsn, created_at, topic, type, key) on postrider.waiting_event to role_name;
