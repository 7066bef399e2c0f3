-- The first schema. It runs as one transaction; afterwards postrider_meta says what the file holds.
--
-- PRAGMA user_version stays untouched: the file may be the application's own database.

create table postrider_meta (
    name text primary key,
    value text not null
) strict, without rowid;

-- The log. Producers write here and nowhere else, from any language:
--
--     insert into postrider_event (topic, type, key, payload)
--     values ('order', 'order.created', '42', '{"total": 12}');
--
-- A payload is JSON as text, or bytes as a blob; either is kept to the letter. Without a type the type is the topic.
--
-- Leave out id: one below a subscription's position would never be delivered. `autoincrement` because an
-- id must never be handed out twice, even when the newest rows are gone. The table is not strict, so that
-- a payload may be text or blob and a key may be a number; and the default of created_at avoids functions
-- that SQLite before 3.42 lacks, since that is what many languages still ship.
--
-- Producers pay for what the table checks. Of 8,800 instructions for a bare insert, one call of length()
-- costs 200, checking every column 1,300, and an index that hardly any row enters 400. So there is no index,
-- and the only checks are those of sizes, which protect readers. Everything else is read as it is. Bytes
-- are counted, as length() of a text would stop at a NUL character; octet_length() does, but SQLite before 3.43
-- lacks it.
create table postrider_event (
    id integer primary key autoincrement,
    topic text not null,
    type text,
    key text,
    payload blob,
    headers text,
    created_at integer not null
        default (cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000),
    due_at integer,
    constraint topic_has_at_most_255_bytes check (length(cast(topic as blob)) <= 255),
    constraint type_has_at_most_255_bytes check (length(cast(type as blob)) <= 255),
    constraint key_has_at_most_1024_bytes check (length(cast(key as blob)) <= 1024),
    constraint headers_have_at_most_128_kib check (length(cast(headers as blob)) <= 131072),
    constraint payload_has_at_most_1_mib check (length(cast(payload as blob)) <= 1048576)
);

-- What makes a repeated emit harmless. By plain SQL, in one transaction that begins with BEGIN IMMEDIATE:
--
--     insert into postrider_idempotency (key) values ('order-42-created') on conflict do nothing;
--     insert into postrider_event (topic, type) select 'order', 'order.created' where changes() = 1;
--     update postrider_idempotency set event_id = last_insert_rowid()
--     where key = 'order-42-created' and event_id is null;
--
-- A key whose `until` is over is free: the next emit with it takes the row over. Without `until` it is taken for
-- as long as its event is kept.
create table postrider_idempotency (
    key text primary key,
    event_id integer,
    until integer
) strict, without rowid;

-- A key is forgotten with its event.
create index postrider_idempotency_event
    on postrider_idempotency (event_id);

-- Events whose key a newer one has taken over: a queue that comes to one passes over it. Forgotten with the event.
create table postrider_superseded (
    event_id integer primary key
) strict;

create table postrider_subscription (
    id integer primary key autoincrement,
    name text not null,
    filter text not null,
    mode text not null,
    order_rule text not null,
    on_dead text not null,
    tuning text not null,
    created_at integer not null,
    paused_at integer,
    constraint subscription_names_are_unique unique (name)
) strict;

-- One running process. beat_at is time since the machine started, which no clock setting moves.
create table postrider_member (
    id integer primary key autoincrement,
    name text not null,
    pid integer not null,
    pid_namespace text not null,
    boot_id text not null,
    started integer not null,
    joined_at integer not null,
    beat_at integer not null
) strict;

-- How far each shard of a subscription has come, and whose it is. The epoch grows with every change of
-- owner, and every write of an owner is checked against it.
create table postrider_shard (
    subscription_id integer not null,
    shard integer not null,
    member_id integer,
    epoch integer not null,
    last_id integer not null,
    primary key (subscription_id, shard)
) strict, without rowid;

-- Members that want a part of a subscription's shards.
create table postrider_standing (
    subscription_id integer not null,
    member_id integer not null,
    primary key (subscription_id, member_id)
) strict, without rowid;

-- The exceptions: events below the position that are not simply done. `waits` tells a row that stands
-- behind the head of its lane from the head itself.
create table postrider_delivery (
    subscription_id integer not null,
    event_id integer not null,
    shard integer not null,
    key text,
    late integer not null,
    turn integer not null,
    parks integer not null,
    state text not null,
    attempts integer not null,
    due_at integer,
    edited_payload blob,
    died_at integer,
    waits integer generated always as (state = 'pending' and due_at is null) virtual,
    primary key (subscription_id, event_id),
    constraint state_is_known check (state in ('pending', 'leased', 'done', 'dead')),
    constraint only_keys_park check (parks = 0 or (parks = 1 and key is not null)),
    constraint only_what_may_be_attempted_is_due check (due_at is null or state in ('pending', 'done')),
    constraint the_dead_have_a_time_of_death check (state <> 'dead' or died_at is not null)
) strict, without rowid;

-- What is due.
create index postrider_delivery_due
    on postrider_delivery (subscription_id, due_at, event_id)
    where due_at is not null;

-- The head of each parked lane: at most one.
create index postrider_delivery_head
    on postrider_delivery (subscription_id, key, late)
    where parks = 1 and waits = 0;

-- What waits behind a head, in lane order.
create index postrider_delivery_lane
    on postrider_delivery (subscription_id, key, late, turn, event_id)
    where parks = 1 and waits = 1;

-- Whether an event is still needed.
create index postrider_delivery_event
    on postrider_delivery (event_id);

create index postrider_delivery_dead
    on postrider_delivery (subscription_id, event_id)
    where state = 'dead';

-- What a change of owner has to make pending again.
create index postrider_delivery_leased
    on postrider_delivery (subscription_id, event_id)
    where state = 'leased';

-- Mode queue: what was fed and is not done. A row stands for one event, or for a block of them: then `spans` names them
-- as a JSON array of a first id and a length, and so on, and the row has the name of the first, also when that one has
-- left it since. `rank` is the priority turned round, so that one index has rows in the order in which they are
-- claimed. A dead letter is no row of this table but one of postrider_delivery, where people look for it.
create table postrider_queued (
    subscription_id integer not null,
    event_id integer not null,
    last_id integer not null,
    spans text,
    events integer not null,
    bytes integer not null,
    rank integer not null,
    virtual_time integer not null,
    tenant integer,
    key text,
    late integer not null,
    turn integer not null,
    parks integer not null,
    state text not null,
    due_at integer,
    token integer not null,
    started integer not null,
    finished integer not null,
    edited_payload blob,
    reach integer generated always as (last_id - event_id) virtual,
    primary key (subscription_id, event_id),
    constraint queued_state_is_known check (state in ('ready', 'due', 'waiting', 'leased')),
    constraint only_what_is_due_has_a_time check ((state = 'due') = (due_at is not null)),
    constraint only_keys_park check (parks = 0 or (parks = 1 and key is not null)),
    constraint only_what_parks_waits check (state <> 'waiting' or parks = 1),
    constraint a_block_names_its_events check (events = 1 or spans is not null)
) strict, without rowid;

-- What may be claimed, in this order: what has not failed yet, and what has. Apart, so that a claim which wants few of
-- those that fail over and over need not walk over the rest of them.
create index postrider_queued_ready
    on postrider_queued (subscription_id, rank, virtual_time, event_id)
    where state = 'ready' and finished = 0;

create index postrider_queued_again
    on postrider_queued (subscription_id, rank, virtual_time, event_id)
    where state = 'ready' and finished > 0;

-- What will be ready at its time.
create index postrider_queued_due
    on postrider_queued (subscription_id, due_at, event_id)
    where state = 'due';

-- The heads of each lane: at most one, or as many as the limit of a key says.
create index postrider_queued_head
    on postrider_queued (subscription_id, key, late)
    where parks = 1 and state <> 'waiting';

-- What waits behind a head, in lane order. Apart from the heads, so that a lane of any length costs the same.
create index postrider_queued_lane
    on postrider_queued (subscription_id, key, late, turn, event_id)
    where state = 'waiting';

-- What a claim has, and how many events all claims have.
create index postrider_queued_leased
    on postrider_queued (subscription_id, token, event_id, events)
    where state = 'leased';

-- In which block an event is: one that begins before it, by no more than the widest block reaches.
create index postrider_queued_block
    on postrider_queued (subscription_id, event_id, last_id)
    where spans is not null;

create index postrider_queued_reach
    on postrider_queued (subscription_id, reach)
    where spans is not null;

-- A claim has some rows of postrider_queued under one lease. `autoincrement`, since a token must never be given twice.
-- until_us is time since the machine started, like beat_at of a member.
create table postrider_claim (
    token integer primary key autoincrement,
    subscription_id integer not null,
    member_id integer not null,
    lease_us integer not null,
    until_us integer not null
) strict;

-- Events in the hands of a claim's worker that an operator has cancelled.
create table postrider_cancelled (
    token integer not null,
    event_id integer not null,
    primary key (token, event_id)
) strict, without rowid;

-- What the rate of a queue still allowed, and when; since_us is time since the machine started.
create table postrider_allowance (
    subscription_id integer primary key,
    events real not null,
    since_us integer not null
) strict;

-- What handlers wanted to be kept of their work. It goes with its event.
create table postrider_result (
    subscription_id integer not null,
    event_id integer not null,
    result text,
    -- How far the handler has come, or had when it ended.
    progress text,
    percent integer,
    progress_at integer,
    primary key (subscription_id, event_id)
) strict, without rowid;

create table postrider_attempt (
    subscription_id integer not null,
    event_id integer not null,
    attempt integer not null,
    started_at integer not null,
    took_us integer not null,
    member text not null,
    error text not null,
    primary key (subscription_id, event_id, attempt)
) strict, without rowid;

-- What is emitted at which times. A schedule that is replaced gets a new id, so that a relay that fires what was there
-- before fires nothing.
create table postrider_schedule (
    id integer primary key autoincrement,
    name text not null,
    cron text not null,
    zone text not null,
    missed text not null,
    topic text not null,
    type text not null,
    key text,
    payload blob not null,
    headers text,
    created_at integer not null,
    paused_at integer,
    next_at integer not null,
    ticked_at integer,
    constraint schedule_names_are_unique unique (name)
) strict;

-- Which one is next.
create index postrider_schedule_next
    on postrider_schedule (next_at)
    where paused_at is null;

-- Who destroyed or skipped what, and when.
create table postrider_audit (
    id integer primary key autoincrement,
    at integer not null,
    actor text not null,
    action text not null,
    subscription text,
    event_id integer,
    detail text
) strict;

-- What was done to an event.
create index postrider_audit_event on postrider_audit (subscription, event_id);

insert into postrider_meta (name, value)
values ('schema_version', '1'), ('oldest_version', '1'), ('store_id', lower(hex(randomblob(8))));
