-- Makes a role without login, unless the name exists, and revokes all its rights on this store. Afterwards it has the
-- rights that are granted below, and none that were granted before.
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
