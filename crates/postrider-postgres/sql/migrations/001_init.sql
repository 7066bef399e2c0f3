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

-- Whether the lease of a member lasts. Where the clock was set back, beats lie in the future, and nobody should wait until
-- it has caught up; but those who live need a lease to beat again. So whoever has seen a steady clock since `steady_since`,
-- for a lease or longer, takes such a member for dead; others do not.
create function postrider.lives(beat_at timestamptz, lease interval, steady_since timestamptz) returns boolean
language sql volatile parallel safe
return postrider.clock() <= beat_at + lease
    and (postrider.clock() >= beat_at - lease or coalesce(postrider.clock() <= steady_since + lease, true));

-- The log. Producers write here and nowhere else, from any language:
--
--     insert into postrider.event (topic, type, key, payload)
--     values ('order', 'order.created', '42', '{"total": 12}');
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
    topic text not null,
    type text not null,
    key text,
    headers json,
    payload bytea not null default '',
    constraint payload_has_at_most_1_mib check (octet_length(payload) <= 1048576)
) partition by list (((id >> 34) & 15));

-- Leaves die by truncation: vacuuming what was only ever inserted would rewrite them for nothing.
do $$
begin
    for leaf in 0..15 loop
        execute format(
            'create table postrider.%I partition of postrider.event (primary key (id)) for values in (%s)
             with (autovacuum_vacuum_insert_threshold = -1)', 'event_' || leaf, leaf);
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
    type text not null,
    key text,
    headers json,
    payload bytea not null
);

-- What makes a repeated emit harmless. A second producer with the same key waits for the first to end: the
-- only wait between producers.
--
-- A key whose `until` is over is free: whoever emits with it next takes the row over. Without `until` it is taken for as
-- long as its event is kept.
create table postrider.idempotency (
    key text primary key,
    event_id bigint,
    until timestamptz
);

-- A key is forgotten with its event.
create index idempotency_event on postrider.idempotency (event_id);

-- Events whose key a newer one has taken over: a queue that comes to one passes over it. A table of its own, since that a key
-- no longer points to an event is no proof: its period may be over, and such an event has to be delivered. Forgotten with
-- the event.
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
    -- How many events of a key may be in somebody's hands, if keys have a limit.
    per_key integer generated always as ((tuning -> 'queue' ->> 'per_key')::integer) stored,
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

-- How far shards have come. Rows are appended, never updated: under an old snapshot that somebody holds for
-- hours, a row that is updated ten times a second becomes slower and slower. The newest row that names a shard
-- counts. Of the two tables one is written; now and then the other one takes what still counts over from it and
-- it is truncated.
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
    rung_xids xid8[] not null,
    rung_seqs bigint[] not null,
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
    edited_payload bytea,
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

-- Mode `queue`: what was fed from the log and is not done. A row stands for one event, or for a block of up to a hundred
-- that need neither order nor a due time: then `spans` has a first id and a length, and so on.
--
-- A claim changes only columns that no index knows, so that it is a HOT update: room is left in every page for it. A row that
-- is ready stays in its index while it is leased; those who claim begin behind what they know to be taken (hints.rs). There
-- is no foreign key: it would cost more than the row. Rows die young, and vacuum may come as often as it is worth it.
--
-- What is fed into the lane of a key that has an order gets its turn from a sequence. So turns grow in a lane, and whoever
-- knows one that has come need not look before it (floors.rs).
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
    edited_payload bytea,
    -- In this order: of a table that fills and empties the planner may believe that a subscription has one row, and then
    -- takes the first column alone for good enough. That made a claim walk all rows: 350 ms instead of 2.
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

-- What may be claimed, in order.
create index queued_ready on postrider.queued (subscription_id, rank, virtual_time, event_id)
where state = 'r';

create index queued_due on postrider.queued (subscription_id, due_at)
where state = 'd';

-- The heads of each lane: one, or as many as the limit of a key says.
create index queued_head on postrider.queued (subscription_id, key, late, turn)
where key is not null and parks and state <> 'w';

-- Who waits in a lane, in its order. Apart from the heads, so that a lane of any length costs the same.
create index queued_lane on postrider.queued (subscription_id, key, late, turn, event_id)
where key is not null and parks and state = 'w';

-- How far those who claim have come with each rank: nobody need look below it, and what is ready again is put behind it.
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

-- What is emitted at which times. A schedule that is replaced gets a new id, so that whoever fires what was there before
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
    payload bytea not null,
    headers json,
    created_at timestamptz not null,
    paused_at timestamptz,
    next_at timestamptz not null,
    ticked_at timestamptz,
    constraint schedule_names_are_unique unique (name)
);

-- Which one is next.
create index schedule_next on postrider.schedule (next_at) where paused_at is null;

-- Slots that are being made: until their log was read up to where they begin, nobody may go by them.
create table postrider.new_slot (
    name text primary key
);

-- Events that were emitted without a row, as messages in the server's write-ahead log. Whoever follows their slot writes them
-- into the log; the protocol is at the head of message.rs.
--
-- Whether messages may be written. 1: nobody takes them, an event is a row as any other. 2: somebody did, events wait. Else
-- the instant, in milliseconds since 1970, until which there is somebody. A sequence, since all see its value at once, whatever
-- snapshot their transaction has.
create sequence postrider.message_until minvalue 1;

-- How far messages were stored: all that committed below `stored_lsn`, and of the transaction that committed at `part_lsn`
-- as many as are counted. The prefix is a secret: anybody may write messages, but who emits is known by it.
create table postrider.message_source (
    only_one boolean primary key default true,
    prefix text not null,
    stored_lsn pg_lsn,
    part_lsn pg_lsn,
    part_count bigint not null default 0,
    constraint there_is_one_source check (only_one)
);

-- Events that were emitted while nobody was there to take messages: in their order, they come after all messages that committed
-- below their `lsn`.
create table postrider.waiting_event (
    id bigint generated always as identity primary key,
    lsn pg_lsn not null,
    created_at timestamptz not null,
    topic text not null,
    type text not null,
    key text,
    headers json,
    payload bytea not null
);

-- Which is next.
create index waiting_event_lsn on postrider.waiting_event (lsn, id);

-- How often relays have changed between a slot and the table, where they read at last, and since when.
create table postrider.switch (
    slot text primary key,
    reading text not null,
    switches bigint not null,
    at timestamptz not null
);

-- Who destroyed or skipped what, and when.
create table postrider.audit (
    id bigint generated always as identity primary key,
    at timestamptz not null,
    actor text not null,
    action text not null,
    subscription text,
    event_id bigint,
    detail text
);

-- Emits by SQL, with what a plain insert cannot do: a delay on the database's clock, and an idempotency key.
-- Returns the event's id; for a repeated idempotency key that of the first.
--
-- The key is taken for `unique_for`, or for as long as the event is kept. With `replace` the event is emitted although the
-- key is taken, and takes it over; the header lets claims see which events may have been superseded.
--
-- It runs with the rights of the schema's owner, so that producers need none on the keys, and looks up no name
-- in a schema that its caller could fill: the path is pinned and temporary objects come last in it.
create function postrider.emit(
    topic text,
    type text,
    key text default null,
    payload bytea default '',
    headers json default null,
    due_in interval default null,
    idempotency_key text default null,
    due_at timestamptz default null,
    unique_for interval default null,
    replace boolean default false
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
    -- A key that is to be taken over is locked first, and judged again by what is locked. Of several who come at once the
    -- first has the row until its transaction ends. The others wait for that: in the insert, which cannot tell whether it
    -- conflicts with a row that is being changed, or in `for update`. Under READ COMMITTED both go on with the newest version
    -- of the row: if the first has committed, that is its event and a period that has just begun, so that they return its
    -- id; if it was rolled back, that is the row as it was, and the next one has it. Under a stricter level the statement
    -- fails, to be tried again. What is merely taken is not locked, so that repeats never wait for each other.
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
    if replace and headers ->> 'postrider-replaces' is null then
        select json_object_agg(header.name, header.value)
        into headers
        from (
            select pair.key as name, pair.value from json_each(headers) as pair
            union all
            select 'postrider-replaces', '"true"'::json
        ) as header;
    end if;
    insert into postrider.event (topic, type, key, payload, headers, due_at)
    values (topic, type, key, payload, headers, coalesce(due_at, postrider.clock() + due_in))
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

-- Fires a schedule: moves it on from where it was seen and emits its event for each tick, if nobody else has, it is not
-- paused and it has not been replaced.
--
-- Of several that come at once the first has the row; the others wait for it to commit and then find that the schedule
-- has moved on. It runs with the rights of the schema's owner, so that relays can emit what people have put, and nothing
-- else.
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
    returning s.name, s.topic, s.type, s.key, s.payload, coalesce(s.headers, '{}') as headers into fired;
    if not found then
        return false;
    end if;
    insert into postrider.event (topic, type, key, payload, headers)
    select fired.topic, fired.type, fired.key, fired.payload, (
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

-- Which server this is: its identifier, then the timeline of its write-ahead log, which is a new one after every failover
-- and every restore to a point in time, and the database.
--
-- Managed servers may keep some of this to themselves. Without an identifier the server is told by the token below, and
-- without the place of the write-ahead log its timeline by the last checkpoint. Where neither timeline can be had, a failover
-- is not noticed, and the store keeps its identity.
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

-- A dump does not carry what a materialized view holds: whoever restores it draws another token. A copy of the files, a standby and
-- `pg_upgrade` keep it, as they keep the numbers of transactions.
create materialized view postrider.server_token as select gen_random_uuid() as token;

-- Says who the store is, and whether this server is its home.
--
-- On another timeline of the same server the positions are as consistent as the events: the log goes on. But ids of
-- events that did not make it here are issued again, so that what deduplicates by them must be able to tell the two
-- apart: the store gets a new identity. On another server the xids mean nothing, and somebody has to say what this is.
--
-- It runs with the rights of the schema's owner, so that whoever comes first after a failover can do it, and decides by
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
        insert into postrider.audit (at, actor, action, detail)
        select postrider.clock(), session_user, 'store_moved',
            format('from %s to %s; its identity was %s', split_part(known, '/', 2), split_part(here, '/', 2), store_id);
    end if;
    select value into store_id from postrider.meta where name = 'store_id';
end
$$;

revoke execute on function postrider.home from public;
revoke execute on function postrider.identify from public;

-- Whoever may emit is told so by name; see the guide for a producer's grants.
revoke execute on function postrider.emit from public;
revoke execute on function postrider.fire from public;

-- Emits an event without a row, as a message in the server's write-ahead log, and says how it was written: `message`, or
-- `waiting` while nobody is there to take messages, or `row` where nobody ever was.
--
-- The transaction's number is fetched before it is read whether messages may be written: whoever forbids them waits for all
-- transactions that have a number, and then knows of each message. A transaction keeps to the way it has begun with, since
-- its messages come when it commits. The lock lets whoever ends the source wait for those who are about to write what waits.
create function postrider.emit_message(
    topic text,
    type text,
    key text default null,
    payload bytea default '',
    headers json default null
) returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    now timestamptz := postrider.clock();
    xid text := pg_current_xact_id()::text;
    way text := current_setting('postrider.message_way', true);
    until bigint;
begin
    if topic is null or type is null or payload is null then
        raise exception 'an event has a topic, a type and a payload' using errcode = 'not_null_violation';
    end if;
    if octet_length(payload) > 1048576 then
        raise exception 'a payload has at most 1 MiB' using errcode = 'check_violation';
    end if;
    select last_value into until from postrider.message_until;
    if way = 'message ' || xid
        or way is distinct from 'waiting ' || xid and until > 2 and now < to_timestamp(until / 1000.0)
    then
        perform set_config('postrider.message_way', 'message ' || xid, true);
        perform pg_logical_emit_message(true, s.prefix, record_send(row(
            now,
            convert_to(topic, 'UTF8'),
            convert_to(type, 'UTF8'),
            convert_to(key, 'UTF8'),
            convert_to(headers::text, 'UTF8'),
            payload
        )))
        from postrider.message_source as s;
        return 'message';
    end if;
    if until > 1 then
        lock table postrider.waiting_event in row exclusive mode;
        select last_value into until from postrider.message_until;
    end if;
    if until > 1 then
        perform set_config('postrider.message_way', 'waiting ' || xid, true);
        insert into postrider.waiting_event (lsn, created_at, topic, type, key, headers, payload)
        values (pg_current_wal_insert_lsn(), now, topic, type, key, headers, payload);
        return 'waiting';
    end if;
    insert into postrider.event (topic, type, key, payload, headers)
    values (topic, type, key, payload, headers);
    return 'row';
end
$$;

-- Writes messages into the log, in their order, if the source stands where its follower knows it to; whether it did.
create function postrider.message_store(
    known_lsn pg_lsn,
    known_part_lsn pg_lsn,
    known_part_count bigint,
    new_lsn pg_lsn,
    new_part_lsn pg_lsn,
    new_part_count bigint,
    created_ats timestamptz[],
    topics text[],
    types text[],
    keys text[],
    headers json[],
    payloads bytea[]
) returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    update postrider.message_source as s
    set stored_lsn = new_lsn, part_lsn = new_part_lsn, part_count = new_part_count
    where s.stored_lsn is not distinct from known_lsn
        and s.part_lsn is not distinct from known_part_lsn
        and s.part_count = known_part_count;
    if not found then
        return false;
    end if;
    insert into postrider.event (created_at, topic, type, key, headers, payload)
    select new.created_at, new.topic, new.type, new.key, new.headers, new.payload
    from unnest(created_ats, topics, types, keys, message_store.headers, payloads)
        with ordinality as new (created_at, topic, type, key, headers, payload, n)
    order by new.n;
    return true;
end
$$;

-- Moves events that waited into the log, those up to `upto`, at most so many; the place of the first one that is left.
create function postrider.message_move(upto pg_lsn, most integer) returns pg_lsn
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    with moved as (
        delete from postrider.waiting_event as w
        where w.id in (
            select first.id
            from postrider.waiting_event as first
            where first.lsn <= upto
            order by first.lsn, first.id
            limit most
        )
        returning w.*
    )
    insert into postrider.event (created_at, topic, type, key, headers, payload)
    select m.created_at, m.topic, m.type, m.key, m.headers, m.payload
    from moved as m
    order by m.lsn, m.id;
    -- By a statement of its own, which sees what others have moved or written meanwhile.
    return (select min(w.lsn) from postrider.waiting_event as w);
end
$$;

-- Lets messages be written for a while, or no longer.
create function postrider.message_allow(during interval) returns void
language sql volatile security definer
set search_path = pg_catalog, pg_temp
begin atomic
    select setval('postrider.message_until', (extract(epoch from postrider.clock() + during) * 1000)::bigint)
    where during is not null;
    select setval('postrider.message_until', 2)
    from postrider.message_until
    where during is null and last_value > 2;
end;

revoke execute on function postrider.emit_message from public;
revoke execute on function postrider.message_store from public;
revoke execute on function postrider.message_move from public;
revoke execute on function postrider.message_allow from public;

-- Makes events of the rows that are inserted into another program's outbox table, in the transactions that insert them, by a
-- trigger: topics, keys and headers as Debezium's event router makes them. With `existing`, of the rows that are there as well:
-- in the order of their ids if these are numbers, else in the order in which the table has them. How many those were.
--
-- The trigger's function is made for the table's columns and runs with the rights of whoever calls this, so that those who write
-- into the table need none on the log. Making the trigger waits for all who write into the table, and they wait for it.
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
as $$
declare
    wanted text;
    found_type regtype;
    id_order text := 'ctid';
    payload text;
    headers text := '';
    event text;
    events bigint := 0;
begin
    foreach wanted in array
        array[id_column, topic_column, key_column, type_column, payload_column] || header_columns
    loop
        select a.atttypid::regtype into found_type
        from pg_attribute as a
        where a.attrelid = source and a.attname = wanted and a.attnum > 0 and not a.attisdropped;
        if not found then
            raise exception 'table % has no column `%`', source, wanted
                using errcode = 'undefined_column', hint = 'Say which of its columns to take instead.';
        end if;
        if wanted = payload_column then
            payload := case when found_type = 'bytea'::regtype then 'new.%I' else 'convert_to(new.%I::text, ''UTF8'')' end;
        end if;
        if wanted = id_column and found_type in ('smallint'::regtype, 'integer'::regtype, 'bigint'::regtype) then
            id_order := format('new.%I', id_column);
        end if;
    end loop;
    foreach wanted in array header_columns loop
        headers := headers || format(', %L, new.%I::text', wanted, wanted);
    end loop;
    event := format(
        '%L || new.%I::text, coalesce(new.%I::text, %L || new.%I::text), new.%I::text, coalesce(' || payload || ', ''''),
         json_strip_nulls(json_build_object(''id'', new.%I::text%s))',
        topic_prefix, topic_column, type_column, topic_prefix, topic_column, key_column, payload_column, id_column, headers
    );
    execute format(
        'create or replace function postrider.outbox_%s() returns trigger
         language plpgsql volatile security definer
         set search_path = pg_catalog, pg_temp
         as $trigger$
         begin
             insert into postrider.event (topic, type, key, payload, headers) values (%s);
             return null;
         end
         $trigger$', source::oid, event);
    execute format('revoke execute on function postrider.outbox_%s() from public', source::oid);
    execute format(
        'create or replace trigger postrider_outbox after insert on %s
         for each row execute function postrider.outbox_%s()', source, source::oid);
    if existing then
        execute format(
            'insert into postrider.event (topic, type, key, payload, headers)
             select %s from %s as new order by %s', event, source, id_order);
        get diagnostics events = row_count;
    end if;
    return events;
end
$$;

-- Leaves an outbox table alone; whether it was not.
create function postrider.outbox_detach(source regclass) returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    made regprocedure;
begin
    select t.tgfoid::regprocedure into made
    from pg_trigger as t
    where t.tgrelid = source and t.tgname = 'postrider_outbox' and not t.tgisinternal;
    if not found then
        return false;
    end if;
    execute format('drop trigger postrider_outbox on %s', source);
    execute format('drop function %s', made);
    return true;
end
$$;

revoke execute on function postrider.outbox_attach from public;
revoke execute on function postrider.outbox_detach from public;

-- Leaves a line about what a relay did with its slot. It runs with the rights of the schema's owner, so that a relay can do
-- this and write nothing else into the audit.
create function postrider.slot_note(action text, name text) returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if action not in ('publication create', 'slot create', 'slot drop', 'slot takeover', 'messages lost') then
        raise exception 'a relay does not %', action using errcode = 'invalid_parameter_value';
    end if;
    insert into postrider.audit (at, actor, action, detail)
    values (postrider.clock(), session_user, slot_note.action, slot_note.name);
end
$$;

revoke execute on function postrider.slot_note from public;

-- Lets an owner's transaction go on only if all is as the owner knows it, and keeps it so until the transaction ends: takes
-- the locks of a settle, then compares the fence. Says whether the subscription is paused.
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
            (('postrider.shard'::regclass::oid::bigint + subscription * 7919) % 2147483647)::integer,
            (member % 2147483647)::integer
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

-- Takes an event out of a queue for its handler, in the handler's own transaction, if it is leased under this token; whether
-- it was. The next event of its key is made ready.
--
-- It leaves the claim alone, which its worker extends meanwhile; the row is taken out of that when the handler has returned.
-- It runs with the rights of the schema's owner, so that handlers need none on the queue.
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

-- Whose handlers may ack is told so by name.
revoke execute on function postrider.ack from public;

-- Wakes relays that sleep. It is called after each statement that emits, once `postrider store wake notify` has made the
-- trigger `wake`; without it nothing calls this.
--
-- The lock says whether somebody sleeps, and to whoever is about to that an emit is under way: the protocol is at the
-- head of sentry.rs. While nobody sleeps, it costs 3 µs a statement and notifies nobody, since commits that notify
-- wait for each other. A wake may be lost, so that it is left out while the server's queue is filling up: a full
-- one would make the producer fail.
--
-- It runs with its caller's rights and looks up no name in a schema that somebody could fill: all of them are
-- written out, since pinning the path would double its cost.
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

insert into postrider.meta (name, value)
values
    ('schema_version', '1'),
    ('oldest_version', '1'),
    ('store_id', substr(md5(gen_random_uuid()::text), 1, 16)),
    ('home', postrider.home());

insert into postrider.position_table (current, switched_at) values ('a', postrider.clock());

insert into postrider.message_source (prefix) values ('postrider-' || gen_random_uuid());
