-- Whether the schema exists, because a role that may not create one can be given one. Index: pg_namespace's own. Locks:
-- none.
select to_regnamespace(format('%I', $1::text)) is not null
