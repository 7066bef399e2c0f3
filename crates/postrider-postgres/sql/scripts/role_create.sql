-- Makes a role that nobody can log in as, unless there is one of its name, and takes from it whatever it may do with
-- this store: afterwards it may do what is granted to it below, and nothing that was granted before.
do $$
begin
    if not exists (select from pg_catalog.pg_roles where rolname = role_text) then
        create role role_name nologin;
    end if;
end
$$;
revoke all on schema "schema_name" from role_name;
revoke all on all tables in schema "schema_name" from role_name;
revoke all on all sequences in schema "schema_name" from role_name;
revoke all on all functions in schema "schema_name" from role_name;
