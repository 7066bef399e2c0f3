//! The table of rights in docs/postgresql.md, statement by statement: all that it denies is refused, all that
//! it grants is done, and what an operator does by SQL leaves a line.

use postrider_core::{Event, NewSubscription, Start, Store};
use postrider_postgres::RoleKind;
use postrider_postgres::tokio_postgres::Client;
use postrider_postgres::tokio_postgres::error::SqlState;
use postrider_testkit::postgres::Version;

use crate::roles::{Cast, refused};
use crate::scene::Row;

on_each_version!(
    what_the_table_denies_is_refused,
    what_the_table_grants_is_done,
    an_event_can_be_inserted_as_libraries_do_it,
    what_an_operator_does_by_sql_leaves_a_line,
    lines_of_the_audit_name_the_role_and_the_time_of_the_server,
    a_relay_can_turn_the_ring_no_further_than_it_should,
    a_lock_of_somebody_else_is_told_with_its_holder,
);

/// Statements that none of these roles may run: a role that may could give itself the rest.
const TO_ALL: &[&str] = &[
    "create table postrider.mine (a int)",
    "create function postrider.mine() returns int language sql return 1",
    "alter table postrider.event add column mine text",
    "alter table postrider.event disable trigger all",
    "drop table postrider.audit",
    "insert into postrider.audit (at, role, actor, action) values (now(), 'a', 'a', 'a')",
    "update postrider.audit set actor = 'bob'",
    "delete from postrider.audit",
    "truncate postrider.audit",
    "update postrider.meta set value = 'x'",
    "insert into postrider.event (topic, type, id) overriding system value values ('a', 'b', 7)",
    "insert into postrider.event (topic, type, xid) values ('a', 'b', '7')",
    "update postrider.event set payload = null",
    "delete from postrider.event",
    "truncate postrider.event",
    "select setval('postrider.event_id_seq', 9)",
    "select nextval('postrider.event_id_seq')",
    "insert into postrider.kept_event (id, created_at, topic, type, payload) values (1, now(), 'a', 'b', '\"c\"')",
    "update postrider.delivery set event_id = 7",
    "update postrider.subscription set name = 'other'",
    "insert into postrider.superseded values (1)",
    "select key from postrider.idempotency",
    "insert into postrider.idempotency (key) values ('a')",
    "select postrider.outbox_attach('postrider.event')",
    "select postrider.outbox_detach('postrider.event')",
    "update postrider.schedule set topic = 'a'",
];

/// What none but producers may do.
const TO_ALL_BUT_PRODUCERS: &[&str] = &[
    "insert into postrider.event (topic, type) values ('a', 'b')",
    "insert into postrider.event_0 (topic, type) values ('a', 'b')",
    "insert into postrider.outbox (topic, type) values ('a', 'b')",
    "select postrider.emit('a', 'b')",
    "copy postrider.event (topic, type) from stdin",
];

const TO_PRODUCERS: &[&str] = &[
    "select payload from postrider.event",
    "select * from postrider.event",
    "select topic from postrider.event_0",
    "insert into postrider.event (topic, type) values ('a', 'b') returning payload",
    "insert into postrider.event (topic, type, created_at) values ('a', 'b', now())",
    "select * from postrider.subscription",
    "select * from postrider.delivery",
    "select * from postrider.audit",
    "select postrider.fire(1, now(), '{}', now())",
    "select postrider.ack(1, 1, 1, 1)",
    "select postrider.ring_rotate(0)",
    "select postrider.leaf_keep('postrider.event_0')",
    "select postrider.bury(1, '{}', '{}', true)",
    "select postrider.audit_put('a', 'subscription_seek', '{a}', '{1}', null)",
];

const TO_RELAYS: &[&str] = &[
    "update postrider.delivery set edited_payload = null",
    "insert into postrider.delivery
         (subscription_id, event_id, shard, late, turn, parks, state, attempts, edited_payload)
         values (1, 1, 0, false, 1, false, 'pending', 0, '1')",
    "insert into postrider.queued
         (subscription_id, event_id, last_id, virtual_time, turn, bytes, events, rank, late, parks, state, edited_payload)
         values (1, 1, 1, 0, 1, 0, 1, 0, false, false, 'r', '1')",
    "update postrider.queued set edited_payload = null",
    "insert into postrider.turn values (1, 1, now())",
    "update postrider.subscription set paused_at = now()",
    "update postrider.subscription set filter = '{}'",
    "delete from postrider.subscription",
    "truncate postrider.delivery",
    "insert into postrider.schedule (name, cron, zone, missed, topic, type, payload, created_at, next_at)
         values ('a', '@daily', 'UTC', 'last', 'a', 'b', '1', now(), now())",
    "delete from postrider.schedule",
    "select * from postrider.audit",
    "select postrider.audit_put('a', 'subscription_seek', '{a}', '{1}', null)",
];

const TO_OPERATORS: &[&str] = &[
    "truncate postrider.event_0",
    "delete from postrider.event_0",
    "delete from postrider.kept_event",
    "update postrider.position_a set last_id = 0",
    "select postrider.fire(1, now(), '{}', now())",
    "select postrider.audit_put('a', 'store_adopt', '{a}', '{1}', null)",
    "select postrider.slot_note('slot drop', 'a')",
    "select postrider.ring_rotate(0)",
];

const TO_READERS: &[&str] = &[
    "select payload from postrider.event",
    "select headers from postrider.event_15",
    "select event from postrider.event",
    "select headers from postrider.kept_event",
    "select edited_payload from postrider.delivery",
    "select edited_payload from postrider.queued",
    "select payload from postrider.schedule",
    "copy postrider.event to stdout",
    "insert into postrider.subscription (name, filter, mode, order_rule, on_dead, tuning, shard_count, created_at)
         values ('a', '{}', 'log', 'key', 'skip', '{}', 64, now())",
    "update postrider.subscription set paused_at = now()",
    "delete from postrider.delivery",
    "delete from postrider.queued",
    "truncate postrider.event_0",
    "select postrider.ack(1, 1, 1, 1)",
    "select postrider.audit_put('a', 'subscription_seek', '{a}', '{1}', null)",
];

fn denied(kind: RoleKind) -> Vec<&'static str> {
    let own = match kind {
        RoleKind::Producer => TO_PRODUCERS,
        RoleKind::Relay => TO_RELAYS,
        RoleKind::Operator => TO_OPERATORS,
        RoleKind::Reader => TO_READERS,
    };
    let mut all = [TO_ALL, own].concat();
    if kind != RoleKind::Producer {
        all.extend(TO_ALL_BUT_PRODUCERS);
    }
    all
}

async fn what_the_table_denies_is_refused(version: Version) {
    let cast = Cast::new(version).await;
    for kind in RoleKind::ALL {
        refused(&cast.client(kind).await, &denied(kind)).await;
    }
    assert_eq!((cast.scene.events(), cast.scene.number("select count(*) from postrider.audit")), (0, 0));
}

async fn run_all(client: &Client, statements: &[&str]) {
    for sql in statements {
        client.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }
}

/// What is granted is mostly what the other tests of roles do; here is what they do not.
async fn what_the_table_grants_is_done(version: Version) {
    let cast = Cast::new(version).await;
    cast.scene.subscribe("mail", Start::Oldest).await;
    let producer = [
        "insert into postrider.event (topic, type, key, payload, headers, due_at) values ('a', 'b', 'c', '{}', '{}', now())",
        "insert into postrider.event (topic, type) values ('a', 'b') returning id",
        "select postrider.emit('a', 'b', idempotency_key => 'k')",
        "select * from postrider.identify()",
        "select count(id) from postrider.event",
    ];
    run_all(&cast.client(RoleKind::Producer).await, &producer).await;
    let store = cast.store(RoleKind::Producer).await;
    store.event_emit(vec![Event::new("order"), Event::new("order").idempotency_key("k")]).await.unwrap();
    let relay = [
        "select payload from postrider.event",
        "select postrider.ring_rotate(0)",
        "select postrider.leaf_keep('postrider.event_3')",
        "truncate postrider.event_3",
        "select postrider.slot_note('slot create', 'a')",
    ];
    run_all(&cast.client(RoleKind::Relay).await, &relay).await;
    let reader = [
        "select xid, id, created_at, due_at, topic, type, key from postrider.event",
        "select * from postrider.audit",
        "select * from postrider.subscription",
    ];
    run_all(&cast.client(RoleKind::Reader).await, &reader).await;
}

/// TypeORM and Drizzle name the id and give it as DEFAULT; JDBC's generated keys are all columns, and the
/// first is taken.
async fn an_event_can_be_inserted_as_libraries_do_it(version: Version) {
    let cast = Cast::new(version).await;
    let client = cast.client(RoleKind::Producer).await;
    let one = "insert into postrider.outbox (id, topic, type, key, payload, headers, due_at)
         values (default, 'order', 'order.made', '7', '{\"n\": 1}', default, default) returning id";
    let two = "insert into postrider.outbox (id, topic, key) values (default, 'order', '8'), (default, 'order', '9') returning *";
    let ids = |rows: Vec<postrider_postgres::tokio_postgres::Row>| -> Vec<i64> {
        rows.iter().map(|row| row.get(0)).collect()
    };
    assert_eq!(ids(client.query(one, &[]).await.unwrap()), [1]);
    assert_eq!(ids(client.query(two, &[]).await.unwrap()), [2, 3]);
    let found = cast
        .scene
        .text("select string_agg(concat_ws(' ', id, coalesce(type, topic), key), ', ' order by id) from postrider.event");
    assert_eq!(found, "1 order.made 7, 2 order 8, 3 order 9");
    assert_eq!(
        client.query("select * from postrider.outbox", &[]).await.unwrap().len(),
        0,
        "it shows nothing"
    );
    for chosen in [
        "insert into postrider.outbox (id, topic, type) values (7, 'a', 'b')",
        "insert into postrider.outbox (id, topic, type) overriding system value values (7, 'a', 'b')",
    ] {
        let error = client.batch_execute(chosen).await.unwrap_err();
        assert_eq!(error.code().map(SqlState::code), Some("428C9"), "{error:?}");
    }
}

/// What an operator may do by SQL, and what the line about it says.
const BY_SQL: &[(&str, &str)] = &[
    ("delete from postrider.delivery", "delete on delivery"),
    ("update postrider.delivery set edited_payload = null", "update on delivery"),
    ("delete from postrider.queued", "delete on queued"),
    ("update postrider.queued set events = 0, spans = null", "update on queued"),
    (
        "insert into postrider.queued
             (subscription_id, event_id, last_id, virtual_time, turn, bytes, events, rank, late, parks, state, edited_payload)
             values (1, 1, 1, 0, 1, 0, 1, 0, false, false, 'r', '1')",
        "insert on queued",
    ),
    ("delete from postrider.claim", "delete on claim"),
    ("update postrider.claim set cancelled = '{1}'", "update on claim"),
    ("insert into postrider.queue_front values (1, 0, 9)", "insert on queue_front"),
    (
        "insert into postrider.position_a
         select subscription_id, n + 1000, shards, from_snapshot, to_snapshot, next_xid, seq, bound_xids, bound_seqs, 99, at
         from postrider.position_a",
        "insert on position_a",
    ),
    ("delete from postrider.position_a", "delete on position_a"),
    ("delete from postrider.subscription", "delete on subscription"),
    ("delete from postrider.schedule", "delete on schedule"),
];

/// One who does not use our programs is noted all the same, and cannot take it back.
async fn what_an_operator_does_by_sql_leaves_a_line(version: Version) {
    let cast = Cast::new(version).await;
    let scene = &cast.scene;
    let operator = cast.client(RoleKind::Operator).await;
    let login = format!("{}_login", cast.roles.name(RoleKind::Operator));
    for (sql, told) in BY_SQL {
        scene.run(
            "delete from postrider.schedule; delete from postrider.subscription; delete from postrider.audit;
             insert into postrider.schedule (name, cron, zone, missed, topic, type, payload, created_at, next_at)
             values ('mail', '@daily', 'UTC', 'last', 'a', 'b', '1', now(), now())",
        );
        scene.subscribe("mail", Start::Oldest).await;
        operator.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        let line = scene.text("select concat_ws(' ', role, actor, action, detail) from postrider.audit order by id desc limit 1");
        assert_eq!(line, format!("{login} {login} sql {told}"), "{sql}");
    }
}

async fn lines_of_the_audit_name_the_role_and_the_time_of_the_server(version: Version) {
    let cast = Cast::new(version).await;
    let scene = &cast.scene;
    let operator = cast.store(RoleKind::Operator).await;
    let id = operator.subscription_create(NewSubscription::new("mail")).await.map(|made| made.id).unwrap();
    assert_eq!(
        scene.number("select count(*) from postrider.audit"),
        0,
        "a creation destroys nothing: {id:?}"
    );
    let emitted = scene.emit(&["a"]).await[0];
    scene.put("mail", &Row::dead(emitted, "a"));
    let letters = postrider_core::store::DeadLetterQuery {
        subscription: None,
        event_id: Some(emitted),
        after: None,
        limit: 1,
    };
    operator.dead_letter_discard(letters, "ceo").await.unwrap();
    operator.subscription_seek("mail", Start::Oldest, "").await.unwrap();
    operator.subscription_delete("mail", "ceo").await.unwrap();
    let login = format!("{}_login", cast.roles.name(RoleKind::Operator));
    let lines =
        "select string_agg(concat_ws(' ', role, actor, action), ', ' order by id) from postrider.audit";
    assert_eq!(
        scene.text(lines),
        format!(
            "{login} ceo dead_letter_discard, {login} {login} subscription_seek, {login} ceo subscription_delete"
        ),
        "by their programs they leave one line each"
    );
    assert_eq!(scene.text("select bool_and(at = postrider.clock()) from postrider.audit"), "t");
    // One line about something else does not hide what was done.
    scene.subscribe("mail", Start::Oldest).await;
    let client = cast.client(RoleKind::Operator).await;
    client
        .batch_execute(
            "begin; delete from postrider.subscription;
             select postrider.audit_put('x', 'dead_letter_edit', '{mail}', '{1}', null); commit",
        )
        .await
        .unwrap();
    let told =
        scene.number("select count(*) from postrider.audit where action = 'sql' and subscription = 'mail'");
    assert_eq!(told, 1);
}

async fn a_relay_can_turn_the_ring_no_further_than_it_should(version: Version) {
    let cast = Cast::new(version).await;
    let client = cast.client(RoleKind::Relay).await;
    let turn = async |turn: i64| -> bool {
        client.query_one("select postrider.ring_rotate($1)", &[&turn]).await.unwrap().get(0)
    };
    assert!(!turn(0).await, "nothing was emitted");
    cast.scene.emit(&["a"]).await;
    assert!(!turn(1).await && !turn(-1).await, "this is not the turn");
    assert!(turn(0).await);
    assert!(!turn(0).await && !turn(1).await, "the leaf of the next one is empty");
    assert_eq!(cast.scene.turn(), 1);
    let error = client.batch_execute("select postrider.leaf_keep('postrider.meta')").await.unwrap_err();
    assert!(error.as_db_error().unwrap().message().contains("no leaf"), "{error:?}");
}

/// Nothing keeps a role that may connect from taking an advisory lock; but people are told who it is.
async fn a_lock_of_somebody_else_is_told_with_its_holder(version: Version) {
    let cast = Cast::new(version).await;
    let scene = &cast.scene;
    let stranger = format!("{}_stranger", scene.db.name);
    scene.run(&format!("create role {stranger} login"));
    let relay = cast.store(RoleKind::Relay).await;
    let owner = postrider_testkit::conformance::owner::Owner::create(&relay, NewSubscription::new("mail"))
        .await
        .unwrap();
    let emitted = scene.emit(&["a"]).await;
    owner.read_all().await.unwrap();
    let url =
        format!("{}?application_name=brake", scene.db.url.replace("postgres@", &format!("{stranger}@")));
    let (client, connection) =
        postrider_postgres::tokio_postgres::connect(&url, postrider_postgres::tokio_postgres::NoTls)
            .await
            .unwrap();
    tokio::spawn(connection);
    let lock = "select pg_advisory_lock((c.oid::bigint << 32) | 1), pg_backend_pid()
         from pg_class c join pg_namespace n on n.oid = relnamespace where relname = 'shard' and nspname = 'postrider'";
    let pid: i32 = client.query_one(lock, &[]).await.unwrap().get(1);
    let error = owner.settle_rows(emitted[0], Vec::new()).await.unwrap_err();
    let holder = format!("pid {pid} of role `{stranger}`, application `brake`");
    assert!(error.to_string().contains(&holder), "{error}");
    let found = relay.check().await.unwrap();
    assert!(found.iter().any(|line| line.contains(&holder)), "{found:?}");
    client.batch_execute("select pg_advisory_unlock_all()").await.unwrap();
    owner.settle_rows(emitted[0], Vec::new()).await.unwrap();
    assert_eq!(relay.check().await.unwrap(), Vec::<String>::new());
}
