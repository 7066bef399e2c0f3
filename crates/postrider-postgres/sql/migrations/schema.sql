CREATE SCHEMA postrider;

CREATE FUNCTION postrider.ack(subscription_id bigint, event_id bigint, token bigint, bucket integer) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    gone record;
    block record;
    shorter bigint[];
    -- How many heads the lane may have; one, if this is null.
    most integer;
    free integer;
    -- The turn before which nothing is left of the lane.
    floor bigint;
begin
    -- A block may be taken apart while it is waited for; its events are found by the second look.
    for look in 1..3 loop
        delete from postrider.queued q
        where q.event_id = ack.event_id
            and q.subscription_id = ack.subscription_id
            and q.token = ack.token
            and q.leased
            and q.spans is null
        returning q.key, q.late, q.parks, q.turn into gone;
        if found then
            if gone.parks then
                -- With an old snapshot it would not be seen who was fed since and waits for this one.
                if current_setting('transaction_isolation') <> 'read committed' then
                    raise exception 'a delivery that others of its key wait for is acked at isolation level read committed'
                        using errcode = 'feature_not_supported';
                end if;
                perform pg_advisory_xact_lock_shared(
                    (('postrider.queued'::regclass::oid::bigint + ack.subscription_id * 7919) % 2147483647)::integer,
                    ack.bucket
                );
                select coalesce(s.per_key, 2147483647) into most
                from postrider.subscription s
                where s.id = ack.subscription_id
                    and s.order_rule = 'none';
                if found then
                    -- The same as queue_lane_fill.sql does for many.
                    select most - count(*) into free
                    from postrider.queued h
                    where h.subscription_id = ack.subscription_id
                        and h.key = gone.key
                        and h.late = gone.late
                        and h.parks
                        and h.state <> 'w';
                    if free < 1 and pg_try_advisory_xact_lock(
                        (('postrider.queued'::regclass::oid::bigint + ack.subscription_id * 7919) % 2147483647)::integer,
                        ack.bucket
                    ) then
                        return true;
                    end if;
                    update postrider.queued q
                    set state = 'r',
                        virtual_time = greatest(
                            q.virtual_time,
                            (
                                select f.front
                                from postrider.queue_front f
                                where f.subscription_id = q.subscription_id
                                    and f.rank = q.rank
                            )
                        )
                    where q.subscription_id = ack.subscription_id
                        and q.state = 'w'
                        and q.event_id = (
                            select w.event_id
                            from postrider.queued w
                            where w.subscription_id = ack.subscription_id
                                and w.key = gone.key
                                and w.late = gone.late
                                and w.parks
                                and w.state = 'w'
                            order by w.turn, w.event_id
                            limit 1
                            for update skip locked
                        );
                    return true;
                end if;
                -- The same as queue_lane_next.sql does for many.
                floor := case when gone.late then (-9223372036854775808)::bigint else gone.turn end;
                update postrider.queued q
                set state = 'r',
                    virtual_time = greatest(
                        q.virtual_time,
                        (
                            select f.front
                            from postrider.queue_front f
                            where f.subscription_id = q.subscription_id
                                and f.rank = q.rank
                        )
                    )
                where q.subscription_id = ack.subscription_id
                    and q.state = 'w'
                    and q.event_id = (
                        select w.event_id
                        from postrider.queued w
                        where w.subscription_id = ack.subscription_id
                            and w.key = gone.key
                            and w.late = gone.late
                            and w.parks
                            and w.state = 'w'
                            and w.turn >= floor
                        order by w.turn, w.event_id
                        limit 1
                    )
                    and not exists (
                        select
                        from postrider.queued h
                        where h.subscription_id = ack.subscription_id
                            and h.key = gone.key
                            and h.late = gone.late
                            and h.parks
                            and h.state <> 'w'
                            and h.turn >= floor
                    )
                    and not exists (
                        select
                        from postrider.delivery d
                        where d.subscription_id = ack.subscription_id
                            and d.key = gone.key
                            and d.late = gone.late
                            and d.parks
                            and (d.state <> 'pending' or d.due_at is not null)
                    );
            end if;
            return true;
        end if;
        select q.event_id, q.events, q.spans into block
        from postrider.queued q
        where q.event_id = any (array (select unnest(c.rows) from postrider.claim c where c.token = ack.token))
            and q.event_id <= ack.event_id
            and q.last_id >= ack.event_id
            and q.subscription_id = ack.subscription_id
            and q.token = ack.token
            and q.leased
            and exists (
                select
                from generate_series(1, cardinality(q.spans), 2) as n
                where ack.event_id between q.spans[n] and q.spans[n] + q.spans[n + 1] - 1
            )
        for update;
        continue when not found;
        if block.events = 1 then
            delete from postrider.queued q
            where q.event_id = block.event_id
                and q.subscription_id = ack.subscription_id;
        else
            select array_agg(pair.value order by id, pair.place) into shorter
            from generate_series(1, cardinality(block.spans), 2) as n
            cross join generate_series(block.spans[n], block.spans[n] + block.spans[n + 1] - 1) as id
            cross join unnest(array[id, 1]) with ordinality as pair (value, place)
            where id <> ack.event_id;
            update postrider.queued q
            set spans = shorter,
                events = q.events - 1
            where q.event_id = block.event_id
                and q.subscription_id = ack.subscription_id;
        end if;
        return true;
    end loop;
    return false;
end
$$;

CREATE FUNCTION postrider.audit_change() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    told text := format('%s on %s', lower(tg_op), tg_table_name);
    whose text;
begin
    if tg_table_name in ('subscription', 'schedule') then
        whose := old.name;
    elsif tg_op = 'INSERT' and tg_table_name in ('position_a', 'position_b') then
        -- The first position of a subscription is part of its creation, and skips nothing.
        if not exists (
            select from postrider.position_a as p where p.subscription_id = new.subscription_id and p.n < new.n
            union all
            select from postrider.position_b as p where p.subscription_id = new.subscription_id and p.n < new.n
        ) then
            return null;
        end if;
    end if;
    if not exists (
        select
        from (select l.xmin, l.action, l.subscription, l.detail from postrider.audit as l order by l.id desc limit 100) as line
        where line.xmin = pg_current_xact_id()::xid
            and line.action = 'sql'
            and line.detail = told
            and line.subscription is not distinct from whose
    ) then
        insert into postrider.audit (at, role, actor, action, subscription, detail)
        values (postrider.clock(), session_user, session_user, 'sql', whose, told);
    end if;
    return null;
end
$$;

CREATE FUNCTION postrider.audit_put(actor text, action text, subscriptions text[], event_ids bigint[], detail text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    if action not in (
        'subscription_seek', 'subscription_delete', 'dead_letter_edit', 'dead_letter_replay', 'dead_letter_discard',
        'delivery_cancel', 'schedule_put', 'schedule_delete'
    ) and not has_table_privilege(session_user, 'postrider.audit', 'insert') then
        raise exception 'only the owner of the schema does `%`', action using errcode = 'insufficient_privilege';
    end if;
    delete from postrider.audit as line
    using (select recent.id from postrider.audit as recent order by recent.id desc limit 100) as recent
    where line.id = recent.id
        and line.xmin = pg_current_xact_id()::xid
        and line.action = 'sql'
        and case split_part(line.detail, ' ', 3)
            when 'subscription' then audit_put.action = 'subscription_delete' and line.subscription = any (subscriptions)
            when 'schedule' then audit_put.action in ('schedule_put', 'schedule_delete')
            else audit_put.action not in ('schedule_put', 'schedule_delete')
        end;
    insert into postrider.audit (at, role, actor, action, subscription, event_id, detail)
    select postrider.clock(), session_user, coalesce(nullif(audit_put.actor, ''), session_user), audit_put.action,
        entry.subscription, entry.event_id, audit_put.detail
    from unnest(subscriptions, event_ids) as entry (subscription, event_id);
end
$$;

CREATE FUNCTION postrider.bury(subscription_id bigint, event_ids bigint[], shards smallint[], holds boolean) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    with gone as (
        delete from postrider.queued as queued
        where queued.subscription_id = bury.subscription_id
            and queued.event_id = any(event_ids)
        returning queued.*
    )
    insert into postrider.delivery
        (subscription_id, event_id, shard, key, late, turn, parks, state, attempts, died_at, edited_payload,
        edited_payload_bytes)
    select gone.subscription_id, gone.event_id, said.shard, gone.key, gone.late, gone.turn, gone.parks and holds, 'dead',
        greatest(gone.started, 1), postrider.clock(), gone.edited_payload, gone.edited_payload_bytes
    from gone
    join unnest(event_ids, shards) as said (event_id, shard) on said.event_id = gone.event_id
    on conflict on constraint delivery_pkey do nothing;
end
$$;

CREATE FUNCTION postrider.clock() RETURNS timestamp with time zone
    LANGUAGE sql PARALLEL SAFE
    RETURN clock_timestamp();

CREATE FUNCTION postrider.emit(topic text, type text, key numeric, payload anycompatiblenonarray DEFAULT NULL::unknown, headers json DEFAULT NULL::json, due_in interval DEFAULT NULL::interval, idempotency_key text DEFAULT NULL::text, due_at timestamp with time zone DEFAULT NULL::timestamp with time zone, unique_for interval DEFAULT NULL::interval, replace boolean DEFAULT false) RETURNS bigint
    LANGUAGE sql
    AS $_$select postrider.event_emit(
                $1, $2, $3::pg_catalog.text, $4::pg_catalog.json, null, $5, $6, $7, $8, $9, $10
            )$_$;

CREATE FUNCTION postrider.emit(topic text, type text DEFAULT NULL::text, key text DEFAULT NULL::text, payload anycompatiblenonarray DEFAULT NULL::unknown, headers json DEFAULT NULL::json, due_in interval DEFAULT NULL::interval, idempotency_key text DEFAULT NULL::text, due_at timestamp with time zone DEFAULT NULL::timestamp with time zone, unique_for interval DEFAULT NULL::interval, replace boolean DEFAULT false) RETURNS bigint
    LANGUAGE sql
    AS $_$select postrider.event_emit(
                $1, $2, $3::pg_catalog.text, $4::pg_catalog.json, null, $5, $6, $7, $8, $9, $10
            )$_$;

CREATE FUNCTION postrider.emit(topic text, type text, key uuid, payload anycompatiblenonarray DEFAULT NULL::unknown, headers json DEFAULT NULL::json, due_in interval DEFAULT NULL::interval, idempotency_key text DEFAULT NULL::text, due_at timestamp with time zone DEFAULT NULL::timestamp with time zone, unique_for interval DEFAULT NULL::interval, replace boolean DEFAULT false) RETURNS bigint
    LANGUAGE sql
    AS $_$select postrider.event_emit(
                $1, $2, $3::pg_catalog.text, $4::pg_catalog.json, null, $5, $6, $7, $8, $9, $10
            )$_$;

CREATE FUNCTION postrider.emit_bytes(topic text, type text DEFAULT NULL::text, key anycompatiblenonarray DEFAULT NULL::unknown, payload bytea DEFAULT NULL::bytea, headers json DEFAULT NULL::json, due_in interval DEFAULT NULL::interval, idempotency_key text DEFAULT NULL::text, due_at timestamp with time zone DEFAULT NULL::timestamp with time zone, unique_for interval DEFAULT NULL::interval, replace boolean DEFAULT false) RETURNS bigint
    LANGUAGE sql
    AS $_$select postrider.event_emit($1, $2, $3::pg_catalog.text, null, $4, $5, $6, $7, $8, $9, $10)$_$;

CREATE FUNCTION postrider.event_emit(topic text, type text, key text, payload json, payload_bytes bytea, headers json, due_in interval, idempotency_key text, due_at timestamp with time zone, unique_for interval, replace boolean) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    emitted bigint;
    emitted_at timestamptz;
    held record;
    replaced bigint;
begin
    replace := coalesce(replace, false);
    if idempotency_key is null and (replace or unique_for is not null) then
        raise exception 'unique_for and replace need an idempotency_key'
            using errcode = 'invalid_parameter_value';
    end if;
    if unique_for <= interval '0' then
        raise exception 'unique_for must be longer than nothing'
            using errcode = 'invalid_parameter_value';
    end if;
    -- Whoever loses the race for a new key has waited for the winner to commit, and sees its row in the next
    -- statement, which has a snapshot of its own. If the row is gone by then, retention has just forgotten the
    -- key, and it may be taken again.
    --
    -- A key that is to be taken over is locked first, and judged again by what is locked. Of several who come at once
    -- the first has the row until its transaction ends. The others wait for that: in the insert, which cannot tell
    -- whether it conflicts with a row that is being changed, or in `for update`. Under READ COMMITTED both go on with
    -- the newest version of the row: if the first has committed, that is its event and a period that has just begun, so
    -- that they return its id; if it was rolled back, that is the row as it was, and the next one has it. Under a
    -- stricter level the statement fails, to be tried again. What is merely taken is not locked, so that repeats never
    -- wait for each other.
    while idempotency_key is not null loop
        insert into postrider.idempotency (key) values (idempotency_key)
        on conflict do nothing;
        exit when found;
        select i.* into held from postrider.idempotency i where i.key = idempotency_key;
        continue when not found;
        if not replace and coalesce(held.until > postrider.clock(), true) then
            return held.event_id;
        end if;
        select i.* into held from postrider.idempotency i where i.key = idempotency_key for update;
        continue when not found;
        if coalesce(held.until > postrider.clock(), true) then
            if not replace then
                return held.event_id;
            end if;
            replaced := held.event_id;
        end if;
        exit;
    end loop;
    -- What some clients write for none.
    if json_typeof(headers) = 'null' then
        headers := null;
    end if;
    perform postrider.event_fits(topic, type, key, headers, payload, payload_bytes);
    if replace and headers ->> 'postrider-replaces' is null then
        select json_object_agg(header.name, header.value)
        into headers
        from (
            select pair.key as name, pair.value from json_each(headers) as pair
            union all
            select 'postrider-replaces', '"true"'::json
        ) as header;
    end if;
    insert into postrider.event (topic, type, key, payload, payload_bytes, headers, due_at)
    values (
        topic, coalesce(type, topic), key, payload, payload_bytes, headers, coalesce(due_at, postrider.clock() + due_in)
    )
    returning id, created_at into emitted, emitted_at;
    if idempotency_key is not null then
        update postrider.idempotency i
        set event_id = emitted, until = emitted_at + unique_for
        where i.key = idempotency_key;
    end if;
    if replaced is not null then
        insert into postrider.superseded (event_id) values (replaced) on conflict do nothing;
    end if;
    return emitted;
end
$$;

CREATE FUNCTION postrider.event_fits(topic text, type text, key text, headers json, payload json, payload_bytes bytea) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    AS $$
declare
    named record;
begin
    if pg_catalog.octet_length(topic) operator(pg_catalog.>=) 1
        and pg_catalog.octet_length(topic) operator(pg_catalog.<=) 255
        and (
            type is null
            or pg_catalog.octet_length(type) operator(pg_catalog.>=) 1
            and pg_catalog.octet_length(type) operator(pg_catalog.<=) 255
        )
        and (
            key is null
            or pg_catalog.octet_length(key) operator(pg_catalog.>=) 1
            and pg_catalog.octet_length(key) operator(pg_catalog.<=) 1024
        )
        and (headers is null or pg_catalog.octet_length(headers::pg_catalog.text) operator(pg_catalog.<=) 131072)
        and (payload is null or pg_catalog.octet_length(payload::pg_catalog.text) operator(pg_catalog.<=) 1048576)
        and (payload_bytes is null or pg_catalog.octet_length(payload_bytes) operator(pg_catalog.<=) 1048576)
        and (payload is null or payload_bytes is null)
    then
        return true;
    end if;
    if payload is not null and payload_bytes is not null then
        raise exception 'an event has a payload or payload_bytes, not both' using errcode = 'check_violation';
    end if;
    for named in
        select part.name, part.length, part.most
        from (
            values
                ('topic', pg_catalog.octet_length(topic), 1, 255),
                ('type', pg_catalog.octet_length(type), 1, 255),
                ('key', pg_catalog.octet_length(key), 1, 1024),
                ('headers', pg_catalog.octet_length(headers::pg_catalog.text), 0, 131072),
                ('payload', pg_catalog.octet_length(payload::pg_catalog.text), 0, 1048576),
                ('payload_bytes', pg_catalog.octet_length(payload_bytes), 0, 1048576)
        ) as part (name, length, least, most)
        where part.length operator(pg_catalog.<) part.least
            or part.length operator(pg_catalog.>) part.most
    loop
        if named.length operator(pg_catalog.=) 0 then
            raise exception '% is empty: leave it out or give it a value', named.name using errcode = 'check_violation';
        end if;
        raise exception '%: % bytes, the limit is %', named.name, named.length, named.most
            using errcode = 'check_violation';
    end loop;
    return true;
end
$$;

CREATE FUNCTION postrider.fire(schedule_id bigint, seen timestamp with time zone, ticks timestamp with time zone[], goes_on timestamp with time zone) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    fired record;
begin
    update postrider.schedule as s
    set next_at = goes_on,
        ticked_at = coalesce(ticks[cardinality(ticks)], s.ticked_at)
    where s.id = schedule_id
        and s.next_at = seen
        and s.paused_at is null
        and goes_on > seen
        and cardinality(ticks) <= 100
    returning s.name, s.topic, s.type, s.key, s.payload, s.payload_bytes,
        case json_typeof(s.headers) when 'object' then s.headers else '{}' end as headers
    into fired;
    if not found then
        return false;
    end if;
    insert into postrider.event (topic, type, key, payload, payload_bytes, headers)
    select fired.topic, fired.type, fired.key, fired.payload, fired.payload_bytes, (
        select json_object_agg(header.name, header.value order by header.n)
        from (
            select own.key, own.value, own.n
            from json_each_text(fired.headers) with ordinality as own (key, value, n)
            union all
            values
                ('postrider-schedule', fired.name, 1000),
                ('postrider-tick', to_char(due.tick at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), 1001)
        ) as header (name, value, n)
    )
    from unnest(ticks) with ordinality as due (tick, n)
    order by due.n;
    return true;
end
$$;

CREATE FUNCTION postrider.hold_check(subscription bigint, member bigint, known_fence bigint) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
declare
    standing record;
begin
    perform pg_catalog.pg_advisory_xact_lock_shared(
            ('postrider.shard'::regclass::oid::bigint << 32) | subscription
        ),
        pg_catalog.pg_advisory_xact_lock_shared(
            (('postrider.shard'::regclass::oid::bigint + subscription * 7919) % 2147483647::bigint)::integer,
            (member % 2147483647::bigint)::integer
        );
    select s.fence, s.paused_at is not null as paused into standing
    from postrider.subscription as s
    where s.id = subscription;
    if standing.fence is distinct from known_fence then
        raise exception using
            errcode = 'PR001',
            message = pg_catalog.format('subscription %s has changed since its owner looked', subscription);
    end if;
    return standing.paused;
end
$$;

CREATE FUNCTION postrider.home() RETURNS text
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    server text;
    timeline text := '00000000';
begin
    begin
        select system_identifier::text into server from pg_control_system();
    exception when others then
        select token::text into server from postrider.server_token;
    end;
    begin
        timeline := left(pg_walfile_name(pg_current_wal_insert_lsn()), 8);
    exception when others then
        begin
            -- tidy: foreign because it is PostgreSQL's function
            select lpad(upper(to_hex(timeline_id)), 8, '0') into timeline from pg_control_checkpoint();
        exception when others then
            null;
        end;
    end;
    return server || '/' || timeline || '.' || (select oid from pg_database where datname = current_database());
end
$$;

CREATE FUNCTION postrider.identify(OUT store_id text, OUT is_home boolean) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    here text := postrider.home();
    known text;
begin
    select value into known from postrider.meta where name = 'home';
    select value into store_id from postrider.meta where name = 'store_id';
    is_home := split_part(known, '/', 1) = split_part(here, '/', 1);
    if not is_home or known = here then
        return;
    end if;
    -- Of several that come at once the first does it.
    select value into known from postrider.meta where name = 'home' for update;
    if known <> here then
        update postrider.meta set value = here where name = 'home';
        update postrider.meta set value = substr(md5(gen_random_uuid()::text), 1, 16) where name = 'store_id';
        insert into postrider.audit (at, role, actor, action, detail)
        select postrider.clock(), session_user, session_user, 'store_moved',
            format('from %s to %s; its identity was %s', split_part(known, '/', 2), split_part(here, '/', 2), store_id);
    end if;
    select value into store_id from postrider.meta where name = 'store_id';
end
$$;

CREATE FUNCTION postrider.leaf_keep(leaf regclass) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    kept bigint;
begin
    if not exists (
        select from pg_inherits as i where i.inhrelid = leaf and i.inhparent = 'postrider.event'::regclass
    ) then
        raise exception '% is no leaf of the log', leaf using errcode = 'invalid_parameter_value';
    end if;
    execute format(
        'insert into postrider.kept_event (id, created_at, due_at, topic, type, key, headers, payload, payload_bytes)
         select id, created_at, due_at, topic, type, key, headers, payload, payload_bytes
         from %s
         where id in (select event_id from postrider.delivery)
             or id in (select event_id from postrider.queued)
         on conflict (id) do nothing', leaf);
    get diagnostics kept = row_count;
    return kept;
end
$$;

CREATE FUNCTION postrider.lives(beat_at timestamp with time zone, lease interval, steady_since timestamp with time zone) RETURNS boolean
    LANGUAGE sql PARALLEL SAFE
    RETURN ((postrider.clock() <= (beat_at + lease)) AND ((postrider.clock() >= (beat_at - lease)) OR COALESCE((postrider.clock() <= (steady_since + lease)), true)));

CREATE FUNCTION postrider.outbox_attach(source regclass, id_column text DEFAULT 'id'::text, topic_column text DEFAULT 'aggregatetype'::text, key_column text DEFAULT 'aggregateid'::text, type_column text DEFAULT 'type'::text, payload_column text DEFAULT 'payload'::text, header_columns text[] DEFAULT '{}'::text[], topic_prefix text DEFAULT 'outbox.event.'::text, existing boolean DEFAULT false) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET row_security TO 'off'
    AS $_$
declare
    -- The text of a column: as its type writes it, but for two types as a cast would.
    shown constant text := 'case
        when new.%1$I is null then null
        when pg_typeof(new.%1$I) = ''boolean''::regtype
        then case format(''%%s'', new.%1$I) when ''t'' then ''true'' else ''false'' end
        when pg_typeof(new.%1$I) = ''character''::regtype then rtrim(format(''%%s'', new.%1$I))
        else format(''%%s'', new.%1$I)
        end';
    home constant oid := (select c.relnamespace from pg_class as c where c.oid = 'postrider.event'::regclass);
    wanted text;
    made text;
    headers text := '';
    event text;
    id_order text := 'ctid';
    events bigint := 0;
begin
    if (select c.relkind from pg_class as c where c.oid = source) not in ('r', 'p') then
        raise exception '% is no table', source using errcode = 'wrong_object_type';
    end if;
    foreach wanted in array
        array[id_column, topic_column, key_column, type_column, payload_column] || header_columns
    loop
        if not exists (
            select
            from pg_attribute as a
            where a.attrelid = source and a.attname = wanted and a.attnum > 0 and not a.attisdropped
        ) then
            raise exception 'table % has no column `%`', source, wanted
                using errcode = 'undefined_column', hint = 'Say which of its columns to take instead.';
        end if;
    end loop;
    foreach wanted in array header_columns loop
        headers := headers || format(', %L, ', wanted) || format(shown, wanted);
    end loop;
    event := format(
        '%1$L || %2$s, coalesce(nullif(%3$s, ''''), %1$L || %2$s), nullif(%4$s, ''''), case
         when new.%5$I is null then null
         when pg_typeof(new.%5$I) in (''json''::regtype, ''jsonb''::regtype) then format(''%%s'', new.%5$I)::json
         end, case
         when new.%5$I is null then null
         when pg_typeof(new.%5$I) in (''json''::regtype, ''jsonb''::regtype) then null
         when pg_typeof(new.%5$I) = ''bytea''::regtype then format(''%%s'', new.%5$I)::bytea
         else convert_to(%6$s, ''UTF8'')
         end, json_strip_nulls(json_build_object(''id'', %7$s%8$s))',
        topic_prefix, format(shown, topic_column), format(shown, type_column), format(shown, key_column),
        payload_column, format(shown, payload_column), format(shown, id_column), headers
    );
    -- The function that the table has, or one more. Numbers, since an oid may be another table's when a dump was
    -- restored.
    select p.proname into made
    from pg_trigger as t
    join pg_proc as p on p.oid = t.tgfoid
    where t.tgrelid = source and t.tgname = 'postrider_outbox' and not t.tgisinternal and p.pronamespace = home;
    if not found then
        select 'outbox_' || coalesce(max(substr(p.proname, 8)::bigint), 0) + 1 into made
        from pg_proc as p
        where p.pronamespace = home and p.proname ~ '^outbox_[0-9]{1,18}$';
    end if;
    execute format(
        'create or replace function postrider.%I() returns trigger
         language plpgsql volatile security definer
         set search_path = pg_catalog, pg_temp
         as %L', made, format(
        'begin
             insert into postrider.event (topic, type, key, payload, payload_bytes, headers) values (%s);
             return null;
         end', event));
    execute format('revoke execute on function postrider.%I() from public', made);
    -- Who makes a partition of the table needs the right. It lends no other: rows of the table become events anyway.
    execute format(
        'grant execute on function postrider.%I() to %s', made,
        (select c.relowner::regrole from pg_class as c where c.oid = source));
    execute format(
        'create or replace trigger postrider_outbox after insert on %s
         for each row execute function postrider.%I()', source, made);
    perform postrider.outbox_tidy();
    if existing then
        -- Nobody can give the column another type any more before this has ended.
        select coalesce(max(format('new.%I', a.attname)), 'ctid') into id_order
        from pg_attribute as a
        where a.attrelid = source and a.attname = id_column and a.attnum > 0 and not a.attisdropped
            and a.atttypid in ('smallint'::regtype, 'integer'::regtype, 'bigint'::regtype);
        execute format(
            'insert into postrider.event (topic, type, key, payload, payload_bytes, headers)
             select %s from %s as new order by %s', event, source, id_order);
        get diagnostics events = row_count;
    end if;
    return events;
end
$_$;

CREATE FUNCTION postrider.outbox_detach(source regclass) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    if not exists (
        select
        from pg_trigger as t
        where t.tgrelid = source and t.tgname = 'postrider_outbox' and not t.tgisinternal
    ) then
        return false;
    end if;
    execute format('drop trigger postrider_outbox on %s', source);
    perform postrider.outbox_tidy();
    return true;
end
$$;

CREATE FUNCTION postrider.outbox_insert() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    if new.id is not null then
        raise exception 'events get their ids from the log: leave `id` out' using errcode = 'generated_always';
    end if;
    insert into postrider.event (topic, type, key, payload, payload_bytes, headers, due_at)
    values (new.topic, new.type, new.key, new.payload, new.payload_bytes, new.headers, new.due_at)
    returning id into new.id;
    return new;
end
$$;

CREATE FUNCTION postrider.outbox_tidy() RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
declare
    made regprocedure;
begin
    for made in
        select p.oid::regprocedure
        from pg_proc as p
        where p.pronamespace = (select c.relnamespace from pg_class as c where c.oid = 'postrider.event'::regclass)
            and p.proname ~ '^outbox_[0-9]{1,18}$'
            and not exists (select from pg_trigger as t where t.tgfoid = p.oid)
    loop
        execute format('drop function %s', made);
    end loop;
end
$_$;

CREATE FUNCTION postrider.ring_rotate(turn bigint) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    last_id bigint := pg_sequence_last_value('postrider.event_id_seq');
    is_used boolean;
    is_free boolean;
begin
    if last_id is null or last_id >> 34 <> turn or last_id >= ((turn + 1) << 34) - (1 << 14) then
        return false;
    end if;
    execute format(
        'select exists (select from postrider.event_%s), not exists (select from postrider.event_%s)', turn & 15, (turn + 1) & 15
    ) into is_used, is_free;
    if not (is_used and is_free) then
        return false;
    end if;
    -- What was drawn until now, just before the sequence moves on.
    last_id := pg_sequence_last_value('postrider.event_id_seq');
    perform setval('postrider.event_id_seq', (turn + 1) << 34, true);
    insert into postrider.turn (turn, last_id, ended_at)
    values (ring_rotate.turn, last_id, postrider.clock())
    on conflict on constraint turn_pkey do nothing;
    return true;
end
$$;

CREATE FUNCTION postrider.slot_note(action text, name text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    if action not in ('publication create', 'slot create', 'slot drop', 'slot takeover') then
        raise exception 'a relay does not %', action using errcode = 'invalid_parameter_value';
    end if;
    insert into postrider.audit (at, role, actor, action, detail)
    values (postrider.clock(), session_user, session_user, slot_note.action, slot_note.name);
end
$$;

CREATE FUNCTION postrider.wake() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
    if not pg_catalog.pg_try_advisory_xact_lock_shared(tg_relid::pg_catalog.int4, 0) then
        if pg_catalog.pg_notification_queue_usage() operator(pg_catalog.<) 0.5 then
            perform pg_catalog.pg_notify(pg_catalog.concat('postrider_', tg_relid), '');
        end if;
    end if;
    return null;
end
$$;

CREATE TABLE postrider.attempt (
    subscription_id bigint NOT NULL,
    event_id bigint NOT NULL,
    attempt integer NOT NULL,
    started_at timestamp with time zone NOT NULL,
    took interval NOT NULL,
    member text NOT NULL,
    error text NOT NULL
);

CREATE TABLE postrider.audit (
    id bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    role text NOT NULL,
    actor text NOT NULL,
    action text NOT NULL,
    subscription text,
    event_id bigint,
    detail text
);

ALTER TABLE postrider.audit ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME postrider.audit_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE postrider.claim (
    token bigint NOT NULL,
    subscription_id bigint NOT NULL,
    member_id bigint NOT NULL,
    lease interval NOT NULL,
    until timestamp with time zone NOT NULL,
    rows bigint[] NOT NULL,
    rows_left integer NOT NULL,
    events_left integer NOT NULL,
    cancelled bigint[]
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.0', autovacuum_vacuum_threshold='2000', autovacuum_vacuum_cost_delay='0');

CREATE TABLE postrider.delivery (
    subscription_id bigint NOT NULL,
    event_id bigint NOT NULL,
    shard smallint NOT NULL,
    key text,
    late boolean NOT NULL,
    turn bigint NOT NULL,
    parks boolean NOT NULL,
    state text NOT NULL,
    attempts integer NOT NULL,
    due_at timestamp with time zone,
    edited_payload json,
    edited_payload_bytes bytea,
    died_at timestamp with time zone,
    CONSTRAINT only_keys_park CHECK (((NOT parks) OR (key IS NOT NULL))),
    CONSTRAINT only_what_may_be_attempted_is_due CHECK (((due_at IS NULL) OR (state = ANY (ARRAY['pending'::text, 'done'::text])))),
    CONSTRAINT state_is_known CHECK ((state = ANY (ARRAY['pending'::text, 'leased'::text, 'done'::text, 'dead'::text]))),
    CONSTRAINT the_dead_have_a_time_of_death CHECK (((state <> 'dead'::text) OR (died_at IS NOT NULL)))
);

CREATE UNLOGGED TABLE postrider.era (
    current boolean DEFAULT true NOT NULL,
    id uuid NOT NULL,
    started_at timestamp with time zone NOT NULL,
    CONSTRAINT there_is_one_era CHECK (current)
);

CREATE TABLE postrider.event (
    xid xid8 DEFAULT pg_current_xact_id() NOT NULL,
    id bigint NOT NULL,
    created_at timestamp with time zone DEFAULT postrider.clock() NOT NULL,
    due_at timestamp with time zone,
    topic character varying(255) NOT NULL,
    type character varying(255),
    key character varying(1024),
    headers json,
    payload json,
    payload_bytes bytea
)
PARTITION BY LIST ((((id >> 34) & (15)::bigint)));

CREATE TABLE postrider.event_0 (
    xid xid8 DEFAULT pg_current_xact_id() NOT NULL,
    id bigint NOT NULL,
    created_at timestamp with time zone DEFAULT postrider.clock() NOT NULL,
    due_at timestamp with time zone,
    topic character varying(255) NOT NULL,
    type character varying(255),
    key character varying(1024),
    headers json,
    payload json,
    payload_bytes bytea
)
WITH (autovacuum_vacuum_insert_threshold='-1');

CREATE TABLE postrider.event_1 (
    xid xid8 DEFAULT pg_current_xact_id() NOT NULL,
    id bigint NOT NULL,
    created_at timestamp with time zone DEFAULT postrider.clock() NOT NULL,
    due_at timestamp with time zone,
    topic character varying(255) NOT NULL,
    type character varying(255),
    key character varying(1024),
    headers json,
    payload json,
    payload_bytes bytea
)
WITH (autovacuum_vacuum_insert_threshold='-1');

CREATE TABLE postrider.event_10 (
    xid xid8 DEFAULT pg_current_xact_id() NOT NULL,
    id bigint NOT NULL,
    created_at timestamp with time zone DEFAULT postrider.clock() NOT NULL,
    due_at timestamp with time zone,
    topic character varying(255) NOT NULL,
    type character varying(255),
    key character varying(1024),
    headers json,
    payload json,
    payload_bytes bytea
)
WITH (autovacuum_vacuum_insert_threshold='-1');

CREATE TABLE postrider.event_11 (
    xid xid8 DEFAULT pg_current_xact_id() NOT NULL,
    id bigint NOT NULL,
    created_at timestamp with time zone DEFAULT postrider.clock() NOT NULL,
    due_at timestamp with time zone,
    topic character varying(255) NOT NULL,
    type character varying(255),
    key character varying(1024),
    headers json,
    payload json,
    payload_bytes bytea
)
WITH (autovacuum_vacuum_insert_threshold='-1');

CREATE TABLE postrider.event_12 (
    xid xid8 DEFAULT pg_current_xact_id() NOT NULL,
    id bigint NOT NULL,
    created_at timestamp with time zone DEFAULT postrider.clock() NOT NULL,
    due_at timestamp with time zone,
    topic character varying(255) NOT NULL,
    type character varying(255),
    key character varying(1024),
    headers json,
    payload json,
    payload_bytes bytea
)
WITH (autovacuum_vacuum_insert_threshold='-1');

CREATE TABLE postrider.event_13 (
    xid xid8 DEFAULT pg_current_xact_id() NOT NULL,
    id bigint NOT NULL,
    created_at timestamp with time zone DEFAULT postrider.clock() NOT NULL,
    due_at timestamp with time zone,
    topic character varying(255) NOT NULL,
    type character varying(255),
    key character varying(1024),
    headers json,
    payload json,
    payload_bytes bytea
)
WITH (autovacuum_vacuum_insert_threshold='-1');

CREATE TABLE postrider.event_14 (
    xid xid8 DEFAULT pg_current_xact_id() NOT NULL,
    id bigint NOT NULL,
    created_at timestamp with time zone DEFAULT postrider.clock() NOT NULL,
    due_at timestamp with time zone,
    topic character varying(255) NOT NULL,
    type character varying(255),
    key character varying(1024),
    headers json,
    payload json,
    payload_bytes bytea
)
WITH (autovacuum_vacuum_insert_threshold='-1');

CREATE TABLE postrider.event_15 (
    xid xid8 DEFAULT pg_current_xact_id() NOT NULL,
    id bigint NOT NULL,
    created_at timestamp with time zone DEFAULT postrider.clock() NOT NULL,
    due_at timestamp with time zone,
    topic character varying(255) NOT NULL,
    type character varying(255),
    key character varying(1024),
    headers json,
    payload json,
    payload_bytes bytea
)
WITH (autovacuum_vacuum_insert_threshold='-1');

CREATE TABLE postrider.event_2 (
    xid xid8 DEFAULT pg_current_xact_id() NOT NULL,
    id bigint NOT NULL,
    created_at timestamp with time zone DEFAULT postrider.clock() NOT NULL,
    due_at timestamp with time zone,
    topic character varying(255) NOT NULL,
    type character varying(255),
    key character varying(1024),
    headers json,
    payload json,
    payload_bytes bytea
)
WITH (autovacuum_vacuum_insert_threshold='-1');

CREATE TABLE postrider.event_3 (
    xid xid8 DEFAULT pg_current_xact_id() NOT NULL,
    id bigint NOT NULL,
    created_at timestamp with time zone DEFAULT postrider.clock() NOT NULL,
    due_at timestamp with time zone,
    topic character varying(255) NOT NULL,
    type character varying(255),
    key character varying(1024),
    headers json,
    payload json,
    payload_bytes bytea
)
WITH (autovacuum_vacuum_insert_threshold='-1');

CREATE TABLE postrider.event_4 (
    xid xid8 DEFAULT pg_current_xact_id() NOT NULL,
    id bigint NOT NULL,
    created_at timestamp with time zone DEFAULT postrider.clock() NOT NULL,
    due_at timestamp with time zone,
    topic character varying(255) NOT NULL,
    type character varying(255),
    key character varying(1024),
    headers json,
    payload json,
    payload_bytes bytea
)
WITH (autovacuum_vacuum_insert_threshold='-1');

CREATE TABLE postrider.event_5 (
    xid xid8 DEFAULT pg_current_xact_id() NOT NULL,
    id bigint NOT NULL,
    created_at timestamp with time zone DEFAULT postrider.clock() NOT NULL,
    due_at timestamp with time zone,
    topic character varying(255) NOT NULL,
    type character varying(255),
    key character varying(1024),
    headers json,
    payload json,
    payload_bytes bytea
)
WITH (autovacuum_vacuum_insert_threshold='-1');

CREATE TABLE postrider.event_6 (
    xid xid8 DEFAULT pg_current_xact_id() NOT NULL,
    id bigint NOT NULL,
    created_at timestamp with time zone DEFAULT postrider.clock() NOT NULL,
    due_at timestamp with time zone,
    topic character varying(255) NOT NULL,
    type character varying(255),
    key character varying(1024),
    headers json,
    payload json,
    payload_bytes bytea
)
WITH (autovacuum_vacuum_insert_threshold='-1');

CREATE TABLE postrider.event_7 (
    xid xid8 DEFAULT pg_current_xact_id() NOT NULL,
    id bigint NOT NULL,
    created_at timestamp with time zone DEFAULT postrider.clock() NOT NULL,
    due_at timestamp with time zone,
    topic character varying(255) NOT NULL,
    type character varying(255),
    key character varying(1024),
    headers json,
    payload json,
    payload_bytes bytea
)
WITH (autovacuum_vacuum_insert_threshold='-1');

CREATE TABLE postrider.event_8 (
    xid xid8 DEFAULT pg_current_xact_id() NOT NULL,
    id bigint NOT NULL,
    created_at timestamp with time zone DEFAULT postrider.clock() NOT NULL,
    due_at timestamp with time zone,
    topic character varying(255) NOT NULL,
    type character varying(255),
    key character varying(1024),
    headers json,
    payload json,
    payload_bytes bytea
)
WITH (autovacuum_vacuum_insert_threshold='-1');

CREATE TABLE postrider.event_9 (
    xid xid8 DEFAULT pg_current_xact_id() NOT NULL,
    id bigint NOT NULL,
    created_at timestamp with time zone DEFAULT postrider.clock() NOT NULL,
    due_at timestamp with time zone,
    topic character varying(255) NOT NULL,
    type character varying(255),
    key character varying(1024),
    headers json,
    payload json,
    payload_bytes bytea
)
WITH (autovacuum_vacuum_insert_threshold='-1');

ALTER TABLE postrider.event ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME postrider.event_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE postrider.idempotency (
    key text NOT NULL,
    event_id bigint,
    until timestamp with time zone
);

CREATE TABLE postrider.kept_event (
    id bigint NOT NULL,
    created_at timestamp with time zone NOT NULL,
    due_at timestamp with time zone,
    topic text NOT NULL,
    type text,
    key text,
    headers json,
    payload json,
    payload_bytes bytea
);

CREATE TABLE postrider.member (
    id bigint NOT NULL,
    name text NOT NULL,
    joined_at timestamp with time zone NOT NULL,
    beat_at timestamp with time zone NOT NULL,
    steady_since timestamp with time zone NOT NULL,
    lease interval NOT NULL,
    version integer NOT NULL
)
WITH (fillfactor='50');

ALTER TABLE postrider.member ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME postrider.member_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE postrider.meta (
    name text NOT NULL,
    value text NOT NULL
);

CREATE TABLE postrider.new_slot (
    name text NOT NULL
);

CREATE VIEW postrider.outbox AS
 SELECT event.id,
    event.topic,
    event.type,
    event.key,
    event.payload,
    event.payload_bytes,
    event.headers,
    event.due_at
   FROM postrider.event
  WHERE false;

CREATE TABLE postrider.position_a (
    subscription_id bigint NOT NULL,
    n bigint NOT NULL,
    shards bigint NOT NULL,
    from_snapshot pg_snapshot,
    to_snapshot pg_snapshot NOT NULL,
    next_xid xid8 NOT NULL,
    seq bigint NOT NULL,
    bound_xids xid8[] NOT NULL,
    bound_seqs bigint[] NOT NULL,
    last_id bigint NOT NULL,
    at timestamp with time zone NOT NULL
);

CREATE TABLE postrider.position_b (
    subscription_id bigint NOT NULL,
    n bigint NOT NULL,
    shards bigint NOT NULL,
    from_snapshot pg_snapshot,
    to_snapshot pg_snapshot NOT NULL,
    next_xid xid8 NOT NULL,
    seq bigint NOT NULL,
    bound_xids xid8[] NOT NULL,
    bound_seqs bigint[] NOT NULL,
    last_id bigint NOT NULL,
    at timestamp with time zone NOT NULL
);

CREATE SEQUENCE postrider.position_n
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

CREATE TABLE postrider.position_table (
    current character(1) NOT NULL,
    switched_at timestamp with time zone NOT NULL,
    CONSTRAINT current_is_one_of_two CHECK ((current = ANY (ARRAY['a'::bpchar, 'b'::bpchar])))
);

CREATE TABLE postrider.queue_front (
    subscription_id bigint NOT NULL,
    rank smallint NOT NULL,
    front bigint NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE postrider.queue_pace (
    subscription_id bigint NOT NULL,
    free_at timestamp with time zone NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE postrider.queued (
    subscription_id bigint NOT NULL,
    event_id bigint NOT NULL,
    last_id bigint NOT NULL,
    virtual_time bigint NOT NULL,
    token bigint DEFAULT 0 NOT NULL,
    turn bigint NOT NULL,
    due_at timestamp with time zone,
    tenant bigint,
    bytes integer NOT NULL,
    started integer DEFAULT 0 NOT NULL,
    finished integer DEFAULT 0 NOT NULL,
    events smallint NOT NULL,
    rank smallint NOT NULL,
    late boolean NOT NULL,
    parks boolean NOT NULL,
    leased boolean DEFAULT false NOT NULL,
    state "char" NOT NULL,
    key text,
    spans bigint[],
    edited_payload json,
    edited_payload_bytes bytea,
    CONSTRAINT only_what_is_ready_is_leased CHECK (((NOT leased) OR (state = 'r'::"char"))),
    CONSTRAINT state_is_known CHECK ((state = ANY (ARRAY['r'::"char", 'd'::"char", 'w'::"char"]))),
    CONSTRAINT what_is_due_has_a_time CHECK (((state <> 'd'::"char") OR (due_at IS NOT NULL)))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.0', autovacuum_vacuum_threshold='20000', autovacuum_vacuum_cost_delay='0', vacuum_truncate=off);

CREATE SEQUENCE postrider.queued_n
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

CREATE TABLE postrider.result (
    subscription_id bigint NOT NULL,
    event_id bigint NOT NULL,
    result text,
    at timestamp with time zone,
    progress text,
    percent smallint,
    progress_at timestamp with time zone
);

CREATE TABLE postrider.schedule (
    id bigint NOT NULL,
    name text NOT NULL,
    cron text NOT NULL,
    zone text NOT NULL,
    missed text NOT NULL,
    topic text NOT NULL,
    type text NOT NULL,
    key text,
    payload json,
    payload_bytes bytea,
    headers json,
    created_at timestamp with time zone NOT NULL,
    paused_at timestamp with time zone,
    next_at timestamp with time zone NOT NULL,
    ticked_at timestamp with time zone,
    CONSTRAINT its_events_keep_their_limits CHECK (postrider.event_fits(topic, type, key, headers, payload, payload_bytes))
);

ALTER TABLE postrider.schedule ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME postrider.schedule_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE MATERIALIZED VIEW postrider.server_token AS
 SELECT gen_random_uuid() AS token
  WITH NO DATA;

CREATE TABLE postrider.shard (
    subscription_id bigint NOT NULL,
    shard smallint NOT NULL,
    member_id bigint,
    epoch bigint NOT NULL
);

CREATE TABLE postrider.standing (
    subscription_id bigint NOT NULL,
    member_id bigint NOT NULL
);

CREATE TABLE postrider.subscription (
    id bigint NOT NULL,
    name text NOT NULL,
    filter json NOT NULL,
    mode text NOT NULL,
    order_rule text NOT NULL,
    on_dead text NOT NULL,
    tuning json NOT NULL,
    per_key integer GENERATED ALWAYS AS ((((tuning -> 'queue'::text) ->> 'per_key'::text))::integer) STORED,
    shard_count smallint NOT NULL,
    created_at timestamp with time zone NOT NULL,
    paused_at timestamp with time zone,
    fence bigint DEFAULT 0 NOT NULL
);

ALTER TABLE postrider.subscription ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME postrider.subscription_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE postrider.superseded (
    event_id bigint NOT NULL
);

CREATE TABLE postrider.switch (
    slot text NOT NULL,
    reading text NOT NULL,
    switches bigint NOT NULL,
    at timestamp with time zone NOT NULL
);

CREATE TABLE postrider.turn (
    turn bigint NOT NULL,
    last_id bigint NOT NULL,
    ended_at timestamp with time zone NOT NULL
);

ALTER TABLE ONLY postrider.event ATTACH PARTITION postrider.event_0 FOR VALUES IN ('0');

ALTER TABLE ONLY postrider.event ATTACH PARTITION postrider.event_1 FOR VALUES IN ('1');

ALTER TABLE ONLY postrider.event ATTACH PARTITION postrider.event_10 FOR VALUES IN ('10');

ALTER TABLE ONLY postrider.event ATTACH PARTITION postrider.event_11 FOR VALUES IN ('11');

ALTER TABLE ONLY postrider.event ATTACH PARTITION postrider.event_12 FOR VALUES IN ('12');

ALTER TABLE ONLY postrider.event ATTACH PARTITION postrider.event_13 FOR VALUES IN ('13');

ALTER TABLE ONLY postrider.event ATTACH PARTITION postrider.event_14 FOR VALUES IN ('14');

ALTER TABLE ONLY postrider.event ATTACH PARTITION postrider.event_15 FOR VALUES IN ('15');

ALTER TABLE ONLY postrider.event ATTACH PARTITION postrider.event_2 FOR VALUES IN ('2');

ALTER TABLE ONLY postrider.event ATTACH PARTITION postrider.event_3 FOR VALUES IN ('3');

ALTER TABLE ONLY postrider.event ATTACH PARTITION postrider.event_4 FOR VALUES IN ('4');

ALTER TABLE ONLY postrider.event ATTACH PARTITION postrider.event_5 FOR VALUES IN ('5');

ALTER TABLE ONLY postrider.event ATTACH PARTITION postrider.event_6 FOR VALUES IN ('6');

ALTER TABLE ONLY postrider.event ATTACH PARTITION postrider.event_7 FOR VALUES IN ('7');

ALTER TABLE ONLY postrider.event ATTACH PARTITION postrider.event_8 FOR VALUES IN ('8');

ALTER TABLE ONLY postrider.event ATTACH PARTITION postrider.event_9 FOR VALUES IN ('9');

ALTER TABLE ONLY postrider.attempt
    ADD CONSTRAINT attempt_pkey PRIMARY KEY (subscription_id, event_id, attempt);

ALTER TABLE ONLY postrider.audit
    ADD CONSTRAINT audit_pkey PRIMARY KEY (id);

ALTER TABLE ONLY postrider.claim
    ADD CONSTRAINT claim_pkey PRIMARY KEY (token);

ALTER TABLE ONLY postrider.delivery
    ADD CONSTRAINT delivery_pkey PRIMARY KEY (subscription_id, event_id);

ALTER TABLE ONLY postrider.era
    ADD CONSTRAINT era_pkey PRIMARY KEY (current);

ALTER TABLE ONLY postrider.event_0
    ADD CONSTRAINT event_0_pkey PRIMARY KEY (id);

ALTER TABLE ONLY postrider.event_10
    ADD CONSTRAINT event_10_pkey PRIMARY KEY (id);

ALTER TABLE ONLY postrider.event_11
    ADD CONSTRAINT event_11_pkey PRIMARY KEY (id);

ALTER TABLE ONLY postrider.event_12
    ADD CONSTRAINT event_12_pkey PRIMARY KEY (id);

ALTER TABLE ONLY postrider.event_13
    ADD CONSTRAINT event_13_pkey PRIMARY KEY (id);

ALTER TABLE ONLY postrider.event_14
    ADD CONSTRAINT event_14_pkey PRIMARY KEY (id);

ALTER TABLE ONLY postrider.event_15
    ADD CONSTRAINT event_15_pkey PRIMARY KEY (id);

ALTER TABLE ONLY postrider.event_1
    ADD CONSTRAINT event_1_pkey PRIMARY KEY (id);

ALTER TABLE ONLY postrider.event_2
    ADD CONSTRAINT event_2_pkey PRIMARY KEY (id);

ALTER TABLE ONLY postrider.event_3
    ADD CONSTRAINT event_3_pkey PRIMARY KEY (id);

ALTER TABLE ONLY postrider.event_4
    ADD CONSTRAINT event_4_pkey PRIMARY KEY (id);

ALTER TABLE ONLY postrider.event_5
    ADD CONSTRAINT event_5_pkey PRIMARY KEY (id);

ALTER TABLE ONLY postrider.event_6
    ADD CONSTRAINT event_6_pkey PRIMARY KEY (id);

ALTER TABLE ONLY postrider.event_7
    ADD CONSTRAINT event_7_pkey PRIMARY KEY (id);

ALTER TABLE ONLY postrider.event_8
    ADD CONSTRAINT event_8_pkey PRIMARY KEY (id);

ALTER TABLE ONLY postrider.event_9
    ADD CONSTRAINT event_9_pkey PRIMARY KEY (id);

ALTER TABLE ONLY postrider.idempotency
    ADD CONSTRAINT idempotency_pkey PRIMARY KEY (key);

ALTER TABLE ONLY postrider.kept_event
    ADD CONSTRAINT kept_event_pkey PRIMARY KEY (id);

ALTER TABLE ONLY postrider.member
    ADD CONSTRAINT member_pkey PRIMARY KEY (id);

ALTER TABLE ONLY postrider.meta
    ADD CONSTRAINT meta_pkey PRIMARY KEY (name);

ALTER TABLE ONLY postrider.new_slot
    ADD CONSTRAINT new_slot_pkey PRIMARY KEY (name);

ALTER TABLE ONLY postrider.position_a
    ADD CONSTRAINT position_a_pkey PRIMARY KEY (subscription_id, n);

ALTER TABLE ONLY postrider.position_b
    ADD CONSTRAINT position_b_pkey PRIMARY KEY (subscription_id, n);

ALTER TABLE ONLY postrider.queue_front
    ADD CONSTRAINT queue_front_pkey PRIMARY KEY (subscription_id, rank);

ALTER TABLE ONLY postrider.queue_pace
    ADD CONSTRAINT queue_pace_pkey PRIMARY KEY (subscription_id);

ALTER TABLE ONLY postrider.queued
    ADD CONSTRAINT queued_pkey PRIMARY KEY (event_id, subscription_id);

ALTER TABLE ONLY postrider.result
    ADD CONSTRAINT result_pkey PRIMARY KEY (subscription_id, event_id);

ALTER TABLE ONLY postrider.schedule
    ADD CONSTRAINT schedule_names_are_unique UNIQUE (name);

ALTER TABLE ONLY postrider.schedule
    ADD CONSTRAINT schedule_pkey PRIMARY KEY (id);

ALTER TABLE ONLY postrider.shard
    ADD CONSTRAINT shard_pkey PRIMARY KEY (subscription_id, shard);

ALTER TABLE ONLY postrider.standing
    ADD CONSTRAINT standing_pkey PRIMARY KEY (subscription_id, member_id);

ALTER TABLE ONLY postrider.subscription
    ADD CONSTRAINT subscription_names_are_unique UNIQUE (name);

ALTER TABLE ONLY postrider.subscription
    ADD CONSTRAINT subscription_pkey PRIMARY KEY (id);

ALTER TABLE ONLY postrider.superseded
    ADD CONSTRAINT superseded_pkey PRIMARY KEY (event_id);

ALTER TABLE ONLY postrider.switch
    ADD CONSTRAINT switch_pkey PRIMARY KEY (slot);

ALTER TABLE ONLY postrider.turn
    ADD CONSTRAINT turn_pkey PRIMARY KEY (turn);

CREATE INDEX audit_event ON postrider.audit USING btree (subscription, event_id);

CREATE INDEX delivery_dead ON postrider.delivery USING btree (subscription_id, event_id) WHERE (state = 'dead'::text);

CREATE INDEX delivery_due ON postrider.delivery USING btree (subscription_id, due_at, event_id) WHERE (due_at IS NOT NULL);

CREATE INDEX delivery_event ON postrider.delivery USING btree (event_id);

CREATE INDEX delivery_head ON postrider.delivery USING btree (subscription_id, key, late) WHERE (parks AND ((state <> 'pending'::text) OR (due_at IS NOT NULL)));

CREATE INDEX delivery_lane ON postrider.delivery USING btree (subscription_id, key, late, turn, event_id) WHERE (parks AND (state = 'pending'::text) AND (due_at IS NULL));

CREATE INDEX delivery_leased ON postrider.delivery USING btree (subscription_id, event_id) WHERE (state = 'leased'::text);

CREATE INDEX idempotency_event ON postrider.idempotency USING btree (event_id);

CREATE INDEX queued_again ON postrider.queued USING btree (subscription_id, rank, virtual_time, event_id) WHERE ((state = 'r'::"char") AND (finished > 0));

CREATE INDEX queued_due ON postrider.queued USING btree (subscription_id, due_at) WHERE (state = 'd'::"char");

CREATE INDEX queued_head ON postrider.queued USING btree (subscription_id, key, late, turn) WHERE ((key IS NOT NULL) AND parks AND (state <> 'w'::"char"));

CREATE INDEX queued_lane ON postrider.queued USING btree (subscription_id, key, late, turn, event_id) WHERE ((key IS NOT NULL) AND parks AND (state = 'w'::"char"));

CREATE INDEX queued_ready ON postrider.queued USING btree (subscription_id, rank, virtual_time, event_id) WHERE ((state = 'r'::"char") AND (finished = 0));

CREATE INDEX schedule_next ON postrider.schedule USING btree (next_at) WHERE (paused_at IS NULL);

CREATE TRIGGER audit_change AFTER DELETE OR UPDATE OF cancelled ON postrider.claim FOR EACH STATEMENT WHEN ((NOT has_function_privilege(('postrider.hold_check'::regproc)::oid, 'execute'::text))) EXECUTE FUNCTION postrider.audit_change();

CREATE TRIGGER audit_change AFTER DELETE OR UPDATE ON postrider.delivery FOR EACH STATEMENT WHEN ((NOT has_function_privilege(('postrider.hold_check'::regproc)::oid, 'execute'::text))) EXECUTE FUNCTION postrider.audit_change();

CREATE TRIGGER audit_change AFTER INSERT OR DELETE ON postrider.position_a FOR EACH ROW WHEN ((NOT has_function_privilege(('postrider.hold_check'::regproc)::oid, 'execute'::text))) EXECUTE FUNCTION postrider.audit_change();

CREATE TRIGGER audit_change AFTER INSERT OR DELETE ON postrider.position_b FOR EACH ROW WHEN ((NOT has_function_privilege(('postrider.hold_check'::regproc)::oid, 'execute'::text))) EXECUTE FUNCTION postrider.audit_change();

CREATE TRIGGER audit_change AFTER INSERT OR DELETE ON postrider.queue_front FOR EACH STATEMENT WHEN ((NOT has_function_privilege(('postrider.hold_check'::regproc)::oid, 'execute'::text))) EXECUTE FUNCTION postrider.audit_change();

CREATE TRIGGER audit_change AFTER INSERT OR DELETE OR UPDATE OF last_id, events, spans, edited_payload, edited_payload_bytes ON postrider.queued FOR EACH STATEMENT WHEN ((NOT has_function_privilege(('postrider.hold_check'::regproc)::oid, 'execute'::text))) EXECUTE FUNCTION postrider.audit_change();

CREATE TRIGGER audit_change AFTER DELETE ON postrider.schedule FOR EACH ROW EXECUTE FUNCTION postrider.audit_change();

CREATE TRIGGER audit_change AFTER DELETE ON postrider.subscription FOR EACH ROW EXECUTE FUNCTION postrider.audit_change();

CREATE TRIGGER outbox_insert INSTEAD OF INSERT ON postrider.outbox FOR EACH ROW EXECUTE FUNCTION postrider.outbox_insert();

ALTER TABLE ONLY postrider.attempt
    ADD CONSTRAINT attempt_subscription_id_fkey FOREIGN KEY (subscription_id) REFERENCES postrider.subscription(id) ON DELETE CASCADE;

ALTER TABLE ONLY postrider.delivery
    ADD CONSTRAINT delivery_subscription_id_fkey FOREIGN KEY (subscription_id) REFERENCES postrider.subscription(id) ON DELETE CASCADE;

ALTER TABLE ONLY postrider.result
    ADD CONSTRAINT result_subscription_id_fkey FOREIGN KEY (subscription_id) REFERENCES postrider.subscription(id) ON DELETE CASCADE;

ALTER TABLE ONLY postrider.shard
    ADD CONSTRAINT shard_subscription_id_fkey FOREIGN KEY (subscription_id) REFERENCES postrider.subscription(id) ON DELETE CASCADE;

ALTER TABLE ONLY postrider.standing
    ADD CONSTRAINT standing_member_id_fkey FOREIGN KEY (member_id) REFERENCES postrider.member(id) ON DELETE CASCADE;

ALTER TABLE ONLY postrider.standing
    ADD CONSTRAINT standing_subscription_id_fkey FOREIGN KEY (subscription_id) REFERENCES postrider.subscription(id) ON DELETE CASCADE;

REVOKE ALL ON FUNCTION postrider.ack(subscription_id bigint, event_id bigint, token bigint, bucket integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION postrider.audit_change() FROM PUBLIC;

REVOKE ALL ON FUNCTION postrider.audit_put(actor text, action text, subscriptions text[], event_ids bigint[], detail text) FROM PUBLIC;

REVOKE ALL ON FUNCTION postrider.bury(subscription_id bigint, event_ids bigint[], shards smallint[], holds boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION postrider.emit(topic text, type text, key numeric, payload anycompatiblenonarray, headers json, due_in interval, idempotency_key text, due_at timestamp with time zone, unique_for interval, replace boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION postrider.emit(topic text, type text, key text, payload anycompatiblenonarray, headers json, due_in interval, idempotency_key text, due_at timestamp with time zone, unique_for interval, replace boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION postrider.emit(topic text, type text, key uuid, payload anycompatiblenonarray, headers json, due_in interval, idempotency_key text, due_at timestamp with time zone, unique_for interval, replace boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION postrider.emit_bytes(topic text, type text, key anycompatiblenonarray, payload bytea, headers json, due_in interval, idempotency_key text, due_at timestamp with time zone, unique_for interval, replace boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION postrider.event_emit(topic text, type text, key text, payload json, payload_bytes bytea, headers json, due_in interval, idempotency_key text, due_at timestamp with time zone, unique_for interval, replace boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION postrider.fire(schedule_id bigint, seen timestamp with time zone, ticks timestamp with time zone[], goes_on timestamp with time zone) FROM PUBLIC;

REVOKE ALL ON FUNCTION postrider.hold_check(subscription bigint, member bigint, known_fence bigint) FROM PUBLIC;

REVOKE ALL ON FUNCTION postrider.home() FROM PUBLIC;

REVOKE ALL ON FUNCTION postrider.identify(OUT store_id text, OUT is_home boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION postrider.leaf_keep(leaf regclass) FROM PUBLIC;

REVOKE ALL ON FUNCTION postrider.outbox_attach(source regclass, id_column text, topic_column text, key_column text, type_column text, payload_column text, header_columns text[], topic_prefix text, existing boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION postrider.outbox_detach(source regclass) FROM PUBLIC;

REVOKE ALL ON FUNCTION postrider.outbox_insert() FROM PUBLIC;

REVOKE ALL ON FUNCTION postrider.outbox_tidy() FROM PUBLIC;

REVOKE ALL ON FUNCTION postrider.ring_rotate(turn bigint) FROM PUBLIC;

REVOKE ALL ON FUNCTION postrider.slot_note(action text, name text) FROM PUBLIC;

REVOKE ALL ON FUNCTION postrider.wake() FROM PUBLIC;
