-- Rows in each way in which a producer may write them, noting where the sequence stood when the first column was
-- computed. As a script, since temporary objects cannot be prepared before they are there.
-- Index: none. Locks: none that anybody waits for.
create temporary table postrider_self_test (
    noted bigint not null,
    id bigint generated always as identity (cache 1),
    way text not null
) on commit drop;

create function pg_temp.postrider_noted() returns bigint
language plpgsql volatile
as $$
begin
    return (select case when is_called then last_value else 0 end from pg_temp.postrider_self_test_id_seq);
end
$$;

alter table pg_temp.postrider_self_test alter column noted set default pg_temp.postrider_noted();

insert into pg_temp.postrider_self_test (way) values ('one');

insert into pg_temp.postrider_self_test (way) values ('many'), ('many'), ('many');

insert into pg_temp.postrider_self_test (way)
select 'selected' from generate_series(1, 5) as number order by number desc;

create temporary sequence postrider_self_test_order;
