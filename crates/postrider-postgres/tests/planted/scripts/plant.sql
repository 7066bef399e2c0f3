-- What some role could plant in `public` where it may create: functions and operators under the names of the server's
-- own, for types for which the server has none of exactly that kind, so that they would be the better match. Each
-- raises an error, and leaves its number in the sequence `planted_call`, which no rollback undoes.
--
-- To be run as a superuser in an empty database; it takes some seconds, so that databases are copied from the one that
-- it was run in.
begin;
set local search_path = pg_catalog;
set local check_function_bodies = off;
grant create on schema public to public;
create sequence public.planted_call minvalue 0 start 0;
grant all on public.planted_call to public;
create table public.planted (n bigint generated always as identity, what text not null);
grant select on public.planted to public;

-- Plants one function under a name, for argument types, with the type that it would return.
create function public.plant(name text, arguments text, returned text) returns void
language plpgsql
set search_path = pg_catalog
as $$
declare
    number bigint;
begin
    insert into public.planted (what) values (format('%s(%s)', name, arguments)) returning n into number;
    execute format(
        'create function public.%I(%s) returns %s language plpgsql as %L', name, arguments, returned, format(
        'begin
             perform pg_catalog.setval(''public.planted_call''::pg_catalog.regclass, %s);
             raise exception ''planted: %s'';
         end', number, format('%s(%s)', name, arguments)));
end
$$;

do $$
declare
    scalars text[] := '{text,name,"\"char\"",smallint,integer,bigint,numeric,"double precision",boolean,json,jsonb,bytea,timestamptz,interval,uuid,xid8,pg_lsn,oid,regclass}';
    arrays text[] := '{text[],smallint[],integer[],bigint[],boolean[],bytea[],json[],timestamptz[],interval[],xid8[]}';
    pairs text[] := '{text,integer,bigint,json,regclass,bigint[]}';
    operands text[] := '{text,"\"char\"",smallint,integer,bigint,numeric,json,timestamptz,interval,uuid,xid8,oid,regclass,text[],integer[],bigint[]}';
    called text[] := '{abs,age,array_agg,array_append,bit_or,cardinality,concat,convert_to,count,current_setting,floor,format,
        generate_series,has_column_privilege,hashtext,hashtextextended,json_build_object,json_each,json_each_text,json_object_agg,
        json_strip_nulls,json_to_recordset,jsonb_build_object,left,length,make_interval,max,md5,min,nextval,octet_length,
        pg_advisory_unlock,pg_advisory_xact_lock,pg_advisory_xact_lock_shared,pg_get_expr,pg_logical_emit_message,pg_notify,
        pg_sequence_last_value,pg_snapshot_xmin,pg_terminate_backend,pg_total_relation_size,pg_try_advisory_lock,
        pg_try_advisory_xact_lock,pg_try_advisory_xact_lock_shared,pg_typeof,pg_visible_in_snapshot,pg_wal_lsn_diff,pg_walfile_name,
        record_send,repeat,row_number,rtrim,set_config,setval,split_part,string_agg,string_to_array,substr,sum,to_char,
        to_regclass,to_regnamespace,to_timestamp,unnest}';
    compared text[] := '{=,<>,<,<=,>,>=,~,@>}';
    computed text[] := '{+,-,*,/,%,&,|,<<,>>,->,->>,||}';
    name text;
    one text;
    two text;
    operator text;
    kind text;
begin
    foreach name in array called loop
        foreach one in array scalars || arrays loop
            if not exists (
                select from pg_catalog.pg_proc as p
                where p.pronamespace = 'pg_catalog'::regnamespace and p.proname = name and p.pronargs = 1
                    and p.proargtypes[0] = one::regtype
            ) then
                perform public.plant(name, one, 'bigint');
            end if;
        end loop;
        foreach one in array pairs loop
            foreach two in array pairs loop
                if not exists (
                    select from pg_catalog.pg_proc as p
                    where p.pronamespace = 'pg_catalog'::regnamespace and p.proname = name and p.pronargs = 2
                        and p.proargtypes[0] = one::regtype and p.proargtypes[1] = two::regtype
                ) then
                    perform public.plant(name, pg_catalog.format('%s, %s', one, two), 'bigint');
                end if;
            end loop;
        end loop;
    end loop;
    perform public.plant('format', 'text, text, text', 'text'),
        public.plant('format', 'text, bigint, text, oid', 'text'),
        public.plant('format', 'text, text, text, text', 'text'),
        public.plant('concat', 'text, text, text', 'text'),
        public.plant('json_build_object', 'text, text, text, text', 'json'),
        public.plant('setval', 'text, bigint, boolean', 'bigint'),
        public.plant('pg_logical_emit_message', 'boolean, text, bigint', 'bigint');
    foreach one in array operands loop
        foreach two in array operands loop
            perform public.plant('planted_comparison', pg_catalog.format('%s, %s', one, two), 'boolean'),
                public.plant('planted_computation', pg_catalog.format('%s, %s', one, two), one);
            foreach operator in array compared || computed loop
                if not exists (
                    select from pg_catalog.pg_operator as o
                    where o.oprname = operator and o.oprleft = one::regtype and o.oprright = two::regtype
                ) then
                    kind := case when operator = any (compared) then 'comparison' else 'computation' end;
                    execute pg_catalog.format(
                        'create operator public.%s (leftarg = %s, rightarg = %s, function = public.planted_%s)',
                        operator, one, two, kind);
                end if;
            end loop;
        end loop;
    end loop;
end
$$;
commit;
