-- Makes this server the store's home, under a new identity.
-- Index: primary key. Locks: the rows.
insert into postrider.meta (name, value)
values
    ('home', postrider.home()),
    ('store_id', substr(md5(gen_random_uuid()::text), 1, 16)),
    ('adopted_to', $1::bigint::text)
on conflict (name) do update set value = excluded.value
