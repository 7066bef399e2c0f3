-- Run this in one transaction: that of your tool for migrations, or `psql -1`.
set local lock_timeout = '3s';

-- A setting that is local to a transaction is gone by the next statement if there is none.
select set_config('postrider.migration', 'begun', true);

do $postrider$
begin
    if current_setting('postrider.migration', true) is distinct from 'begun' then
        raise exception 'Postrider''s schema is created in one transaction: use psql -1, or print it with --transaction';
    end if;
    create schema if not exists "schema_name";
end
$postrider$;
