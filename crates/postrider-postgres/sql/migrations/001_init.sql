-- The first schema. It runs as one transaction; afterwards postrider.meta says what the schema holds.
--
-- `postrider` stands for the schema's name everywhere in these files and is replaced when another was chosen.

create table postrider.meta (
    name text primary key,
    value text not null
);

-- The one clock that everything goes by. A function, so that tests can turn it; PostgreSQL inlines it.
create function postrider.clock() returns timestamptz
language sql volatile parallel safe
return pg_catalog.clock_timestamp();

-- Whether the lease of a member lasts. Where the clock was set back, beats lie in the future, and no member should wait
-- until the clock has caught up; but members that live need a lease to beat again. So a member that has seen a steady
-- clock since `steady_since`, for a lease or longer, takes such a member for dead; others do not.
create function postrider.lives(beat_at timestamptz, lease interval, steady_since timestamptz) returns boolean
language sql volatile parallel safe
return postrider.clock() <= beat_at + lease
    and (postrider.clock() >= beat_at - lease or coalesce(postrider.clock() <= steady_since + lease, true));

-- Whether an event keeps its limits; says which one it breaks. They are those of limits.rs, of headers with room for
-- every character to be escaped.
--
-- Every `emit` checks them. A plain insert is checked by the types of the columns alone, because the server reads a
-- check constraint again for each statement: with one, eight producers of one event a transaction came to 0.83 of bare
-- inserts, and COPY to 0.65; without, to 0.97 and 0.94. What breaks a limit all the same becomes a dead letter. A check
-- can be had for that price:
--
--     alter table postrider.event add constraint an_event_keeps_its_limits
--         check (postrider.event_fits(topic, type, key, headers, payload, payload_bytes));
--
-- It runs with its caller's rights. All names are written out, because pinning the path would cost more than all the
-- rest.
create function postrider.event_fits(
    topic text,
    type text,
    key text,
    headers json,
    payload json,
    payload_bytes bytea
) returns boolean
language plpgsql immutable parallel safe
as $$
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

-- The log. Producers write here and nowhere else, from any language:
--
--     insert into postrider.event (topic, type, key, payload)
--     values ('order', 'order.created', '42', '{"total": 12}');
--
-- A payload is JSON and is kept to the letter. What is no JSON goes into payload_bytes instead: text that is given to a
-- column of bytes is read as an escape string, which would change it. Without a type the type is the topic.
--
-- Leave out xid and id. The log is read by what became visible between two snapshots, and that is found
-- without an index on xid because of one fact: a row's xid is fetched before its id is drawn. It holds because
-- xid is the first column, id is `generated always` (with `by default` some statements draw ids first), and the
-- sequence keeps no cache. A self-test at start checks that this server still does it in that order.
--
-- The table is a ring of 16 leaves, chosen by the id's upper bits: 2^34 ids a turn. Rotation moves the
-- sequence to the next leaf, retention truncates a leaf as a whole. So there is no DDL in operation, no leaf
-- can be missing, and no maintenance waits for a producer that writes elsewhere in the ring.
--
-- What producers pay for beyond a plain table: 8 bytes of xid and the way to the leaf.
create table postrider.event (
    xid xid8 not null default pg_catalog.pg_current_xact_id(),
    id bigint generated always as identity (cache 1),
    created_at timestamptz not null default postrider.clock(),
    due_at timestamptz,
    topic varchar(255) not null,
    type varchar(255),
    key varchar(1024),
    headers json,
    payload json,
    payload_bytes bytea
) partition by list (((id >> 34) & 15::bigint));

-- Leaves die by truncation: vacuuming what was only ever inserted would rewrite them for nothing.
do $$
begin
    for leaf in 0..15 loop
        execute pg_catalog.format(
            'create table postrider.event_%s partition of postrider.event (primary key (id)) for values in (%s)
             with (autovacuum_vacuum_insert_threshold = -1)', leaf, leaf);
    end loop;
end
$$;

-- When the ring was turned. A turn is one use of a leaf: id >> 34.
create table postrider.turn (
    turn bigint primary key,
    last_id bigint not null,
    ended_at timestamptz not null
);

-- Events that an exception still needs after their leaf was emptied.
create table postrider.kept_event (
    id bigint primary key,
    created_at timestamptz not null,
    due_at timestamptz,
    topic text not null,
    type text,
    key text,
    headers json,
    payload json,
    payload_bytes bytea
);

-- What makes a repeated emit harmless. A second producer with the same key waits for the first to end: the
-- only wait between producers.
--
-- A key whose `until` is over is free: the next emit with it takes the row over. Without `until` it is taken for as
-- long as its event is kept.
create table postrider.idempotency (
    key text primary key,
    event_id bigint,
    until timestamptz
);

-- A key is forgotten with its event.
create index idempotency_event on postrider.idempotency (event_id);

-- Events whose key a newer one has taken over: a queue that comes to one passes over it. A table of its own, since that
-- a key no longer points to an event is no proof: its period may be over, and such an event has to be delivered.
-- Forgotten with the event.
create table postrider.superseded (
    event_id bigint primary key
);

create table postrider.subscription (
    id bigint generated always as identity primary key,
    name text not null,
    filter json not null,
    mode text not null,
    order_rule text not null,
    on_dead text not null,
    tuning json not null,
    -- How many events of a key may be leased at a time, if keys have a limit.
    per_key integer generated always as ((tuning -> 'queue'::text ->> 'per_key'::text)::integer) stored,
    shard_count smallint not null,
    created_at timestamptz not null,
    paused_at timestamptz,
    -- Grows whenever shards change hands, or a pause begins or ends: an owner that knows it need not look further.
    fence bigint not null default 0,
    constraint subscription_names_are_unique unique (name)
);

-- One running process. Beats are HOT updates: there is room in the page and no index on what changes.
create table postrider.member (
    id bigint generated always as identity primary key,
    name text not null,
    joined_at timestamptz not null,
    beat_at timestamptz not null,
    -- The first of its beats since when the clock was not set back.
    steady_since timestamptz not null,
    lease interval not null,
    -- Of the schema that its program knows: one that would not suit it waits until it has gone.
    version integer not null
) with (fillfactor = 50);

-- Whose each shard of a subscription is. The epoch grows with every change of owner, and every write of an
-- owner is checked against it, under a lock of the subscription that a change of owner has to wait for.
create table postrider.shard (
    subscription_id bigint not null references postrider.subscription (id) on delete cascade,
    shard smallint not null,
    member_id bigint,
    epoch bigint not null,
    primary key (subscription_id, shard)
);

-- Members that want a part of a subscription's shards.
create table postrider.standing (
    subscription_id bigint not null references postrider.subscription (id) on delete cascade,
    member_id bigint not null references postrider.member (id) on delete cascade,
    primary key (subscription_id, member_id)
);

-- The time in which the server has not crashed: empty after every recovery, also that of a standby which takes over.
-- Those who are connected to a pooler learn here what others learn from the end of their connection.
create unlogged table postrider.era (
    current boolean primary key default true,
    id uuid not null,
    started_at timestamptz not null,
    constraint there_is_one_era check (current)
);

-- How far shards have come. Rows are appended, never updated: under an old snapshot that a session holds for hours, a
-- row that is updated ten times a second becomes slower and slower. The newest row that names a shard counts. Of the
-- two tables one is written; now and then the other one takes what still counts over from it and it is truncated.
--
-- A row is complete in itself. `to_*` is a moment of the log: what was visible, the fact (next_xid, seq), and the
-- facts that bound where transactions lie that ran then. Without `from_snapshot` everything visible at that
-- moment is behind the position; with it, of what became visible between the two only ids up to last_id are.
--
-- It must be written by a transaction that began after the snapshot was taken: after a crash the server issues
-- xids again that no surviving record mentions, and a snapshot that has seen them would hide their rows.
create sequence postrider.position_n;

create table postrider.position_a (
    subscription_id bigint not null,
    n bigint not null,
    shards bigint not null,
    from_snapshot pg_snapshot,
    to_snapshot pg_snapshot not null,
    next_xid xid8 not null,
    seq bigint not null,
    bound_xids xid8[] not null,
    bound_seqs bigint[] not null,
    last_id bigint not null,
    at timestamptz not null,
    primary key (subscription_id, n)
);

create table postrider.position_b (like postrider.position_a including all);

-- Which of the two is written.
create table postrider.position_table (
    current char not null,
    switched_at timestamptz not null,
    constraint current_is_one_of_two check (current in ('a', 'b'))
);

-- The exceptions: events behind the position that are not simply done.
create table postrider.delivery (
    subscription_id bigint not null references postrider.subscription (id) on delete cascade,
    event_id bigint not null,
    shard smallint not null,
    key text,
    late boolean not null,
    turn bigint not null,
    parks boolean not null,
    state text not null,
    attempts integer not null,
    due_at timestamptz,
    edited_payload json,
    edited_payload_bytes bytea,
    died_at timestamptz,
    primary key (subscription_id, event_id),
    constraint state_is_known check (state in ('pending', 'leased', 'done', 'dead')),
    constraint only_keys_park check (not parks or key is not null),
    constraint only_what_may_be_attempted_is_due check (due_at is null or state in ('pending', 'done')),
    constraint the_dead_have_a_time_of_death check (state <> 'dead' or died_at is not null)
);

-- What is due.
create index delivery_due on postrider.delivery (subscription_id, due_at, event_id)
where due_at is not null;

-- The head of each parked lane: at most one.
create index delivery_head on postrider.delivery (subscription_id, key, late)
where parks and (state <> 'pending' or due_at is not null);

-- What waits behind a head, in lane order.
create index delivery_lane on postrider.delivery (subscription_id, key, late, turn, event_id)
where parks and state = 'pending' and due_at is null;

-- Whether an event is still needed.
create index delivery_event on postrider.delivery (event_id);

create index delivery_dead on postrider.delivery (subscription_id, event_id)
where state = 'dead';

-- What a change of owner has to make pending again.
create index delivery_leased on postrider.delivery (subscription_id, event_id)
where state = 'leased';

create table postrider.attempt (
    subscription_id bigint not null references postrider.subscription (id) on delete cascade,
    event_id bigint not null,
    attempt integer not null,
    started_at timestamptz not null,
    took interval not null,
    member text not null,
    error text not null,
    primary key (subscription_id, event_id, attempt)
);

-- Mode `queue`: what was fed from the log and is not done. A row stands for one event, or for a block of up to a
-- hundred that need neither order nor a due time: then `spans` has a first id and a length, and so on.
--
-- A claim changes only columns that no index knows, so that it is a HOT update: room is left in every page for it. A
-- row that is ready stays in its index while it is leased; those who claim begin behind what they know to be taken
-- (hints.rs). There is no foreign key: it would cost more than the row. Rows die young, and vacuum may come as often as
-- it is worth it.
--
-- What is fed into the lane of a key that has an order gets its turn from a sequence. So turns grow in a lane, and a
-- worker that knows one that has come need not look before it (floors.rs).
create sequence postrider.queued_n;

create table postrider.queued (
    subscription_id bigint not null,
    -- The first of its events.
    event_id bigint not null,
    last_id bigint not null,
    virtual_time bigint not null,
    -- Of the last claim that it had.
    token bigint not null default 0,
    turn bigint not null,
    due_at timestamptz,
    tenant bigint,
    bytes integer not null,
    started integer not null default 0,
    finished integer not null default 0,
    events smallint not null,
    -- The lower, the more urgent.
    rank smallint not null,
    late boolean not null,
    -- Whether its lane waits for it. A delayed event enters its lane when its time has come.
    parks boolean not null,
    leased boolean not null default false,
    -- r: ready. d: due at a time. w: waits behind the head of its lane.
    state "char" not null,
    key text,
    spans bigint[],
    edited_payload json,
    edited_payload_bytes bytea,
    -- In this order: of a table that fills and empties the planner may believe that a subscription has one row, and
    -- then takes the first column alone for good enough. That made a claim walk all rows: 350 ms instead of 2.
    primary key (event_id, subscription_id),
    constraint state_is_known check (state in ('r', 'd', 'w')),
    constraint only_what_is_ready_is_leased check (not leased or state = 'r'),
    constraint what_is_due_has_a_time check (state <> 'd' or due_at is not null)
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.0,
    autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0,
    vacuum_truncate = off
);

-- What may be claimed, in order: what has not failed yet, and what has. Apart, so that a claim which wants few of those
-- that fail over and over need not walk over the rest of them.
create index queued_ready on postrider.queued (subscription_id, rank, virtual_time, event_id)
where state = 'r' and finished = 0;

create index queued_again on postrider.queued (subscription_id, rank, virtual_time, event_id)
where state = 'r' and finished > 0;

create index queued_due on postrider.queued (subscription_id, due_at)
where state = 'd';

-- The heads of each lane: one, or as many as the limit of a key says.
create index queued_head on postrider.queued (subscription_id, key, late, turn)
where key is not null and parks and state <> 'w';

-- Who waits in a lane, in its order. Apart from the heads, so that a lane of any length costs the same.
create index queued_lane on postrider.queued (subscription_id, key, late, turn, event_id)
where key is not null and parks and state = 'w';

-- How far claims have come with each rank: no claim need look below it, and rows that are ready again go behind it.
create table postrider.queue_front (
    subscription_id bigint not null,
    rank smallint not null,
    front bigint not null,
    primary key (subscription_id, rank)
) with (fillfactor = 50);

-- When the next event may begin where a rate is set.
create table postrider.queue_pace (
    subscription_id bigint primary key,
    free_at timestamptz not null
) with (fillfactor = 50);

-- One lease: all that was claimed at once.
create table postrider.claim (
    token bigint primary key,
    subscription_id bigint not null,
    member_id bigint not null,
    lease interval not null,
    until timestamptz not null,
    -- The rows that it has or had.
    rows bigint[] not null,
    -- How many rows and events of them it still has.
    rows_left integer not null,
    events_left integer not null,
    cancelled bigint[]
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.0,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0
);

-- What handlers wanted to be kept of their work.
create table postrider.result (
    subscription_id bigint not null references postrider.subscription (id) on delete cascade,
    event_id bigint not null,
    result text,
    at timestamptz,
    -- How far the handler has come, or had when it ended.
    progress text,
    percent smallint,
    progress_at timestamptz,
    primary key (subscription_id, event_id)
);

-- What is emitted at which times. A schedule that is replaced gets a new id, so that a relay that fires the old one
-- fires nothing.
create table postrider.schedule (
    id bigint generated always as identity primary key,
    name text not null,
    cron text not null,
    zone text not null,
    missed text not null,
    topic text not null,
    type text not null,
    key text,
    payload json,
    payload_bytes bytea,
    headers json,
    created_at timestamptz not null,
    paused_at timestamptz,
    next_at timestamptz not null,
    ticked_at timestamptz,
    constraint schedule_names_are_unique unique (name),
    constraint its_events_keep_their_limits
        check (postrider.event_fits(topic, type, key, headers, payload, payload_bytes))
);

-- Which one is next.
create index schedule_next on postrider.schedule (next_at) where paused_at is null;

-- Slots that are being made: until the log was read up to where a slot begins, no relay may rely on it.
create table postrider.new_slot (
    name text primary key
);

-- How often relays have changed between a slot and the table, where they read at last, and since when.
create table postrider.switch (
    slot text primary key,
    reading text not null,
    switches bigint not null,
    at timestamptz not null
);

-- Who destroyed or skipped what, and when. Only the functions and triggers at the end of this script write here.
create table postrider.audit (
    id bigint generated always as identity primary key,
    at timestamptz not null,
    -- Who was logged in, by the server's word.
    role text not null,
    -- Who it was by the word of the program that was used.
    actor text not null,
    action text not null,
    subscription text,
    event_id bigint,
    detail text
);

-- What was done to an event.
create index audit_event on postrider.audit (subscription, event_id);

-- Emits an event, with what a plain insert cannot do: a delay on the database's clock, and an idempotency key. It is
-- what `emit` and `emit_bytes` call. Returns the event's id; for a repeated idempotency key that of the first.
--
-- The key is taken for `unique_for`, or for as long as the event is kept. With `replace` the event is emitted although
-- the key is taken, and takes it over; the header lets claims see which events may have been superseded.
--
-- It runs with the rights of the schema's owner, so that producers need none on the keys, and looks up no name
-- in a schema that its caller could fill: the path is pinned and temporary objects come last in it.
create function postrider.event_emit(
    topic text,
    type text,
    key text,
    payload json,
    payload_bytes bytea,
    headers json,
    due_in interval,
    idempotency_key text,
    due_at timestamptz,
    unique_for interval,
    replace boolean
) returns bigint
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
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

-- Emits by SQL:
--
--     select postrider.emit('order', 'order.created', 42, '{"total": 12}', idempotency_key => 'order-42-created');
--
-- The payload is json, jsonb or text, as a literal, a parameter without a type or with one; the key is a text, a number
-- or a uuid. All that can be left out has a default. There are three because one function can leave the type of one
-- parameter open, which is the payload's: a parameter without a type is a text then. (`anyelement` would refuse it.)
--
-- They run with their caller's rights, whose types and casts they use, and the server puts their body in their place:
-- so they cost nothing, and only those who may call `event_emit` can call them.
do $$
declare
    key_type text;
    may_be_left_out text;
begin
    foreach key_type in array array['text', 'numeric', 'uuid'] loop
        may_be_left_out := case key_type when 'text' then 'default null' else '' end;
        execute pg_catalog.format(
            'create function postrider.emit(
                topic text,
                type text %2$s,
                key %1$s %2$s,
                payload anycompatiblenonarray default null,
                headers json default null,
                due_in interval default null,
                idempotency_key text default null,
                due_at timestamptz default null,
                unique_for interval default null,
                replace boolean default false
            ) returns bigint
            language sql volatile
            as ''select postrider.event_emit(
                $1, $2, $3::pg_catalog.text, $4::pg_catalog.json, null, $5, $6, $7, $8, $9, $10
            )''', key_type, may_be_left_out);
    end loop;
end
$$;

-- The same for a payload that is no JSON.
create function postrider.emit_bytes(
    topic text,
    type text default null,
    key anycompatiblenonarray default null,
    payload bytea default null,
    headers json default null,
    due_in interval default null,
    idempotency_key text default null,
    due_at timestamptz default null,
    unique_for interval default null,
    replace boolean default false
) returns bigint
language sql volatile
as 'select postrider.event_emit($1, $2, $3::pg_catalog.text, null, $4, $5, $6, $7, $8, $9, $10)';

-- Fires a schedule: moves it on from where it was seen and emits its event for each tick, if no other process has, it
-- is not paused and it has not been replaced.
--
-- Of several that come at once the first has the row; the others wait for it to commit and then find that the schedule
-- has moved on. It runs with the rights of the schema's owner, so that relays can emit what people have put, and
-- nothing else.
create function postrider.fire(schedule_id bigint, seen timestamptz, ticks timestamptz[], goes_on timestamptz)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
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

-- Which server this is: its identifier, then the timeline of its write-ahead log, which is a new one after every
-- failover and every restore to a point in time, and the database.
--
-- Managed servers may keep some of this to themselves. Without an identifier the server is told by the token below, and
-- without the place of the write-ahead log its timeline by the last checkpoint. Where neither timeline can be had, a
-- failover is not noticed, and the store keeps its identity.
create function postrider.home() returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
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

-- A dump does not carry what a materialized view holds: a restored database draws another token. A copy of the files, a
-- standby and `pg_upgrade` keep it, as they keep the numbers of transactions.
create materialized view postrider.server_token as select pg_catalog.gen_random_uuid() as token;

-- Says who the store is, and whether this server is its home.
--
-- On another timeline of the same server the positions are as consistent as the events: the log goes on. But ids of
-- events that did not make it here are issued again, so that what deduplicates by them must be able to tell the two
-- apart: the store gets a new identity. On another server the xids mean nothing, and an operator has to adopt the
-- store.
--
-- It runs with the rights of the schema's owner, so that the first process after a failover can call it, and decides by
-- itself.
create function postrider.identify(out store_id text, out is_home boolean)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
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

revoke execute on function postrider.home from public;
revoke execute on function postrider.identify from public;

revoke execute on function postrider.fire from public;

-- The right to emit is granted by name; see the guide for a producer's grants.
do $$
declare
    emits regprocedure;
begin
    for emits in
        select p.oid::regprocedure
        from pg_catalog.pg_proc as p
        join pg_catalog.pg_class as c on c.relnamespace = p.pronamespace
        where c.oid = 'postrider.meta'::regclass::oid
            and p.proname in ('event_emit', 'emit', 'emit_bytes')
    loop
        execute pg_catalog.format('revoke execute on function %s from public', emits);
    end loop;
end
$$;

-- Makes events of the rows that are inserted into another program's outbox table, in the transactions that insert them,
-- by a trigger: topics, keys and headers as Debezium's event router makes them. With `existing`, of the rows that are
-- there as well: in the order of their ids if these are numbers, else in the order in which the table has them. How
-- many those were.
--
-- The trigger's function is made for the table's columns and runs with the rights of the role that calls this, so that
-- writers of the table need none on the log. So it must run nothing that belongs to the table's owner, who may give a
-- column another type at any time, with casts to text, json or bytea of his own. A value reaches only functions that
-- take it as it is: `is null`, `pg_typeof`, and `format`, which calls the output function of its type. Output functions
-- are the server's own or a superuser's, for domains, enums and composites too. No cast, no assignment and no `to_json`
-- is applied to it. Policies of the table would be code of its owner as well: a table that has some for its reader is
-- refused, by `row_security`.
--
-- Making the trigger waits for all writers of the table, and they wait for it.
create function postrider.outbox_attach(
    source regclass,
    id_column text default 'id',
    topic_column text default 'aggregatetype',
    key_column text default 'aggregateid',
    type_column text default 'type',
    payload_column text default 'payload',
    header_columns text[] default '{}',
    topic_prefix text default 'outbox.event.',
    existing boolean default false
) returns bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set row_security = off
as $$
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
$$;

-- Drops the functions of outbox tables that are gone.
create function postrider.outbox_tidy() returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
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
$$;

-- Leaves an outbox table alone; whether it was not.
create function postrider.outbox_detach(source regclass) returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
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

revoke execute on function postrider.outbox_tidy from public;
revoke execute on function postrider.outbox_attach from public;
revoke execute on function postrider.outbox_detach from public;

-- Leaves a line about what a relay did with its slot. It runs with the rights of the schema's owner, so that a relay
-- can do this and write nothing else into the audit.
create function postrider.slot_note(action text, name text) returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if action not in ('publication create', 'slot create', 'slot drop', 'slot takeover') then
        raise exception 'a relay does not %', action using errcode = 'invalid_parameter_value';
    end if;
    insert into postrider.audit (at, role, actor, action, detail)
    values (postrider.clock(), session_user, session_user, slot_note.action, slot_note.name);
end
$$;

revoke execute on function postrider.slot_note from public;

-- Lets an owner's transaction go on only if all is as the owner knows it, and keeps it so until the transaction ends:
-- takes the locks of a settle, then compares the fence. Says whether the subscription is paused.
--
-- It fails otherwise, so that statements that were sent after it in the same transaction come to nothing. A function,
-- because the fence must be read by a statement of its own, which sees what happened while it waited for the locks.
create function postrider.hold_check(subscription bigint, member bigint, known_fence bigint) returns boolean
language plpgsql volatile
as $$
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

revoke execute on function postrider.hold_check from public;

-- Takes an event out of a queue for its handler, in the handler's own transaction, if it is leased under this token;
-- whether it was. The next event of its key is made ready.
--
-- It leaves the claim alone, which its worker extends meanwhile; the row is taken out of that when the handler has
-- returned. It runs with the rights of the schema's owner, so that handlers need none on the queue.
create function postrider.ack(subscription_id bigint, event_id bigint, token bigint, bucket integer) returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
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

-- The right to ack is granted by name.
revoke execute on function postrider.ack from public;

-- Wakes relays that sleep. It is called after each statement that emits, once `postrider store wake notify` has made
-- the trigger `wake`; without it nothing calls this.
--
-- The lock says whether a relay sleeps. To a relay that is about to sleep it says that an emit is under way: the
-- protocol is at the head of sentry.rs. While no relay sleeps, the trigger costs 3 µs a statement and does not notify,
-- because commits that notify wait for each other. A wake may be lost, so that it is left out while the server's queue
-- is filling up: a full one would make the producer fail.
--
-- It runs with its caller's rights and looks up no name in a schema that another role could fill: all names are written
-- out, because pinning the path would double its cost.
create function postrider.wake() returns trigger
language plpgsql volatile
as $$
begin
    if not pg_catalog.pg_try_advisory_xact_lock_shared(tg_relid::pg_catalog.int4, 0) then
        if pg_catalog.pg_notification_queue_usage() operator(pg_catalog.<) 0.5 then
            perform pg_catalog.pg_notify(pg_catalog.concat('postrider_', tg_relid), '');
        end if;
    end if;
    return null;
end
$$;

revoke execute on function postrider.wake from public;

-- What follows runs with the rights of the schema's owner, so that a relay can do it and no more: it need neither write
-- kept events, nor move the sequence of ids, nor choose the payload of a delivery.

-- Copies the events that exceptions still need out of a leaf, which is about to be emptied; how many.
create function postrider.leaf_keep(leaf regclass) returns bigint
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
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

-- Ends a turn: the next id is the first one of the next turn, and so of the next leaf. It never goes back, since all
-- ids of the next turn are greater, and happens once, since afterwards the sequence stands in another turn; only if
-- this turn's leaf has been used and the next one is empty. Within a millionth of the turn's end it is left alone:
-- producers are about to come into the next turn by themselves. Whether it was ended.
create function postrider.ring_rotate(turn bigint) returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
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

-- Makes dead letters of the single events of rows that are the caller's. What holds its lane parks it.
create function postrider.bury(subscription_id bigint, event_ids bigint[], shards smallint[], holds boolean) returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
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

revoke execute on function postrider.leaf_keep from public;
revoke execute on function postrider.ring_rotate from public;
revoke execute on function postrider.bury from public;

-- The audit. Its lines are written by these two functions and those above, with the rights of the schema's owner: who
-- was logged in and what time it was is the server's word, and no role can change a line.

-- Writes lines about what a program has done in this transaction: one for each of some subscriptions and events. Lines
-- that the triggers below have written about the same say less, and go.
create function postrider.audit_put(actor text, action text, subscriptions text[], event_ids bigint[], detail text) returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
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

revoke execute on function postrider.audit_put from public;

-- Writes a line about a change by plain SQL: which table and what, once a transaction.
create function postrider.audit_change() returns trigger
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
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

revoke execute on function postrider.audit_change from public;

create trigger audit_change
after delete on postrider.subscription
for each row execute function postrider.audit_change();

create trigger audit_change
after delete on postrider.schedule
for each row execute function postrider.audit_change();

-- The tables that relays write all the time: relays, who may call `hold_check`, and the owner are left alone, by a
-- condition. It costs 9 µs a statement (busy machine: 25 instead of 16 for a delete that finds nothing, 53 instead of
-- 43 for a position), whatever the number of rows, since a settle writes many at once. Transition tables would have
-- cost each row.
create trigger audit_change
after insert or delete or update of last_id, events, spans, edited_payload, edited_payload_bytes on postrider.queued
for each statement
when (not pg_catalog.has_function_privilege('postrider.hold_check'::regproc::oid, 'execute'::text))
execute function postrider.audit_change();

create trigger audit_change
after update or delete on postrider.delivery
for each statement
when (not pg_catalog.has_function_privilege('postrider.hold_check'::regproc::oid, 'execute'::text))
execute function postrider.audit_change();

create trigger audit_change
after delete or update of cancelled on postrider.claim
for each statement
when (not pg_catalog.has_function_privilege('postrider.hold_check'::regproc::oid, 'execute'::text))
execute function postrider.audit_change();

create trigger audit_change
after insert or delete on postrider.queue_front
for each statement
when (not pg_catalog.has_function_privilege('postrider.hold_check'::regproc::oid, 'execute'::text))
execute function postrider.audit_change();

create trigger audit_change
after insert or delete on postrider.position_a
for each row
when (not pg_catalog.has_function_privilege('postrider.hold_check'::regproc::oid, 'execute'::text))
execute function postrider.audit_change();

create trigger audit_change
after insert or delete on postrider.position_b
for each row
when (not pg_catalog.has_function_privilege('postrider.hold_check'::regproc::oid, 'execute'::text))
execute function postrider.audit_change();

-- The log for libraries that name the column `id` and give it as DEFAULT, or want all columns back, which a producer
-- has no right to: who may write ids can choose them. What is inserted here is inserted into the log with the caller's
-- own rights, and only the id comes back; nothing can be read. It costs a trigger a row.
create view postrider.outbox as
select id, topic, type, key, payload, payload_bytes, headers, due_at
from postrider.event
where false;

create function postrider.outbox_insert() returns trigger
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
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

revoke execute on function postrider.outbox_insert from public;

create trigger outbox_insert
instead of insert on postrider.outbox
for each row execute function postrider.outbox_insert();

insert into postrider.meta (name, value)
values
    ('schema_version', '1'),
    ('oldest_version', '1'),
    ('store_id', pg_catalog.substr(pg_catalog.md5(pg_catalog.gen_random_uuid()::text), 1, 16)),
    ('home', postrider.home());

insert into postrider.position_table (current, switched_at) values ('a', postrider.clock());
