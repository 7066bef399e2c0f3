//! Events that were emitted without a row: each becomes one, once, in its order, whatever happens to whoever follows the slot.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use postrider_core::{LogStore, NewSubscription, Store};
use postrider_postgres::tokio_postgres::Client;
use postrider_postgres::{OverBudget, PostgresStore, Source};
use postrider_testkit::postgres::{Database, Server, Settings, Version};

use crate::stage::{AMPLE, Owner, Stage, note, options, run, until};

const PATIENCE: Duration = Duration::from_secs(60);
/// Whether messages may be written at this moment.
const ALLOWED: &str = "select (last_value > extract(epoch from clock_timestamp()) * 1000)::integer from postrider.message_until";
const WAITING: &str = "select count(*) from postrider.waiting_event";
const EVENTS: &str = "select count(*) from postrider.event";
const SLOTS: &str = "select count(*) from pg_replication_slots where database = current_database()";

fn logical(version: Version) -> Server {
    Server::start(version, Settings::fast().set("wal_level", "logical").set("max_prepared_transactions", "5"))
}

async fn open_wal(db: &Database) -> PostgresStore {
    PostgresStore::open(options(db).source(Source::Wal)).await.unwrap()
}

async fn wal(db: Database) -> Stage {
    let stage = Stage { store: open_wal(&db).await, db };
    until(&stage, ALLOWED, 1).await;
    stage
}

/// Emits in whatever transaction the session is in; how that was written.
async fn emit_message(session: &Client, key: &str, note: &str) -> String {
    let emit =
        "select postrider.emit_message_bytes('order', 'order', $1, convert_to($2, 'utf8'), '{\"a\": \"b\"}')";
    session.query_one(emit, &[&key, &note]).await.unwrap().get(0)
}

async fn read_count(owner: &mut Owner, count: usize) -> Vec<String> {
    let mut notes = Vec::new();
    let reading = async {
        while notes.len() < count {
            let chunk = owner.store.fetch(&owner.hold, owner.at, AMPLE).await.unwrap();
            owner.at = chunk.end;
            notes.extend(chunk.events.iter().map(|event| note(&event.payload)));
            // tidy: sleep because messages come when they can
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let done = tokio::time::timeout(PATIENCE, reading).await;
    assert!(done.is_ok(), "only {notes:?} of {count}");
    notes
}

fn numbers(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|n| n.to_string()).collect()
}

#[tokio::test]
async fn messages_become_events_when_their_transaction_commits_and_only_then() {
    for version in Version::ALL {
        let server = logical(version);
        let stage = wal(server.create_database()).await;
        let mut owner = stage.owner("orders").await;
        let (p, q) = (stage.session().await, stage.session().await);
        run(&p, "begin").await;
        assert_eq!(emit_message(&p, "a", "prepared").await, "message");
        run(&p, "prepare transaction 'one'").await;
        run(&q, "begin").await;
        emit_message(&q, "b", "undone").await;
        run(&q, "rollback; begin; savepoint one").await;
        emit_message(&q, "b", "undone within").await;
        run(&q, "rollback to one").await;
        emit_message(&q, "b", "kept").await;
        run(&q, "commit").await;
        assert_eq!(read_count(&mut owner, 1).await, ["kept"], "{version:?}");
        run(&q, "commit prepared 'one'").await;
        assert_eq!(read_count(&mut owner, 1).await, ["prepared"], "{version:?}");
        let event = "select concat_ws(' ', topic, type, key, headers::text, octet_length(payload_bytes)) from postrider.event
                     order by id limit 1";
        assert_eq!(stage.text(event), "order order b {\"a\": \"b\"} 4", "{version:?}");
        let early = "select count(*) from postrider.event where created_at > clock_timestamp()";
        assert_eq!(stage.number(early), 0, "{version:?}: the time is that of the emit");
        assert_eq!(stage.number(WAITING), 0);
    }
}

/// By message, while they wait, and as a row.
#[tokio::test]
async fn messages_take_json_to_the_letter_however_they_are_written() {
    let server = logical(Version::V18);
    let stage = wal(server.create_database()).await;
    let mut owner = stage.owner("orders").await;
    let p = stage.session().await;
    let json = r#"{"path":"C:\\new" , "b":1,"a":"Zo\u00eb \u0000", "a":[1.10]}"#;
    let emit = async || -> String {
        p.query_one("select postrider.emit_message('order', null, 42, $1)", &[&json]).await.unwrap().get(0)
    };
    assert_eq!(emit().await, "message");
    assert_eq!(read_count(&mut owner, 1).await, [json]);
    let Stage { db, store } = stage;
    drop((owner, store));
    let stage = Stage::in_database(db).await;
    until(&stage, "select count(*) from pg_stat_replication", 0).await;
    stage.run("select pg_drop_replication_slot(slot_name) from pg_replication_slots; select postrider.message_allow(null)");
    assert_eq!(emit().await, "waiting");
    stage.store.source_drop("ada").await.unwrap();
    assert_eq!(emit().await, "row");
    let mut owner = stage.owner("others").await;
    assert_eq!(read_count(&mut owner, 3).await, [json; 3]);
    let rows =
        "select count(*) from postrider.event where type = 'order' and key = '42' and payload_bytes is null";
    assert_eq!(stage.number(rows), 3);
}

/// Anybody may write messages into the write-ahead log.
#[tokio::test]
async fn messages_of_others_are_no_events() {
    let server = logical(Version::V15);
    let stage = wal(server.create_database()).await;
    let mut owner = stage.owner("orders").await;
    stage.run(
        "select pg_logical_emit_message(true, 'postrider', record_send(row(now(), 'order'::bytea, 'order'::bytea,
             null::bytea, null::bytea, null::bytea, 'forged'::bytea))),
             pg_logical_emit_message(false, (select prefix from postrider.message_source), 'not of a transaction')",
    );
    let p = stage.session().await;
    emit_message(&p, "k", "1").await;
    assert_eq!(read_count(&mut owner, 1).await, ["1"]);
    assert_eq!(stage.number(EVENTS), 1);
    for (emit, says) in [
        ("select postrider.emit_message(null, 'order')", "an event has a topic"),
        ("select postrider.emit_message('order', key => '')", "key is empty"),
        (
            "select postrider.emit_message('order', key => repeat('k', 1025))",
            "key: 1025 bytes, the limit is 1024",
        ),
        ("select postrider.emit_message('order', payload => '{')", "invalid input syntax for type json"),
    ] {
        let refused = stage.db.try_query(emit).unwrap_err();
        assert!(refused.contains(says), "{emit}: {refused}");
    }
}

/// The place names the message up to which a transaction is stored, and nothing is stored twice.
#[tokio::test]
async fn a_large_transaction_is_stored_in_parts_and_nothing_twice_when_its_follower_is_ended_within() {
    let server = logical(Version::V18);
    let stage = wal(server.create_database()).await;
    let mut owner = stage.owner("orders").await;
    let many = "select postrider.emit_message_bytes('order', 'order', 'k', convert_to(n::text, 'utf8'))
                from generate_series(0, 29999) as n";
    let p = stage.session().await;
    let ending = async {
        for part in 1..=5 {
            until(&stage, &format!("select (count(*) >= {part} * 3000)::integer from postrider.event"), 1)
                .await;
            stage.run("select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name like '%message'");
        }
    };
    tokio::join!(run(&p, many), ending);
    assert!(read_count(&mut owner, 30_000).await == numbers(0..30_000), "each once and in order");
    assert_eq!(stage.number(EVENTS), 30_000);
}

#[tokio::test]
async fn events_wait_while_nobody_follows_the_slot_and_keep_their_order() {
    for version in Version::ALL {
        let server = logical(version);
        let stage = wal(server.create_database()).await;
        let p = stage.session().await;
        assert_eq!(emit_message(&p, "k", "0").await, "message");
        until(&stage, EVENTS, 1).await;
        let Stage { db, store } = stage;
        drop(store);
        let stage = Stage::in_database(db).await;
        until(&stage, "select count(*) from pg_stat_replication", 0).await;
        // Nobody has stored it when the word of the follower is over.
        assert_eq!(emit_message(&p, "k", "1").await, "message", "{version:?}");
        let old = stage.session().await;
        run(&old, "begin isolation level repeatable read; select from postrider.message_source").await;
        stage.run("select setval('postrider.message_until', 3)");
        assert_eq!(emit_message(&p, "k", "2").await, "waiting", "{version:?}");
        assert_eq!(emit_message(&old, "k", "3").await, "waiting", "whatever its snapshot");
        stage.run("select postrider.message_allow('1 minute')");
        assert_eq!(emit_message(&old, "k", "4").await, "waiting", "a transaction keeps to its way");
        run(&old, "commit").await;
        assert_eq!(emit_message(&p, "k", "5").await, "message", "{version:?}");
        assert_eq!((stage.number(WAITING), stage.number(EVENTS)), (3, 1), "{version:?}");
        let found = stage.store.check().await.unwrap();
        assert_eq!(found, Vec::<String>::new(), "they have not waited for long");
        let stage = wal(stage.db).await;
        let mut owner = stage.owner("orders").await;
        assert_eq!(read_count(&mut owner, 6).await, numbers(0..6), "{version:?}");
        assert_eq!((stage.number(WAITING), stage.number(EVENTS)), (0, 6), "{version:?}");
    }
}

/// Emits messages of three keys, whose rows it locks, until it is told to end; some transactions are undone.
async fn write(p: Client, seed: u64, end: Arc<AtomicBool>) {
    let mut random = fastrand::Rng::with_seed(seed);
    while !end.load(Ordering::Relaxed) {
        run(&p, "begin").await;
        for _ in 0..random.u32(1..4) {
            let key = random.u32(0..3).to_string();
            let next = "update counter set n = n + 1 where key = $1 returning n::text";
            // Two that wait for each other are told so, and one of them begins anew.
            let Ok(row) = p.query_one(next, &[&key]).await else { break };
            emit_message(&p, &key, row.get(0)).await;
            tokio::task::yield_now().await;
        }
        run(&p, if random.u32(0..5) == 0 { "rollback" } else { "commit" }).await;
    }
}

/// Ten writers, while the word of the follower comes and goes and its connection is cut again and again.
#[tokio::test]
async fn keys_keep_their_order_however_often_messages_are_forbidden_and_allowed() {
    for version in Version::ALL {
        let server = logical(version);
        let stage = wal(server.create_database()).await;
        stage.run("alter system set deadlock_timeout = '10ms'");
        stage.run("create table counter as select key::text, 0 as n from generate_series(0, 2) as key");
        stage.run("select pg_reload_conf()");
        let end = Arc::new(AtomicBool::new(false));
        let mut writers = tokio::task::JoinSet::new();
        for seed in 0..10 {
            writers.spawn(write(stage.session().await, seed, Arc::clone(&end)));
        }
        for turn in 1..=12 {
            until(&stage, &format!("select (sum(n) >= {turn} * 200)::integer from counter"), 1).await;
            stage.run("select postrider.message_allow(null)");
            until(&stage, &format!("select (sum(n) >= {turn} * 200 + 60)::integer from counter"), 1).await;
            if turn % 3 == 0 {
                stage.run("select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name like '%message'");
            }
            stage.run("select postrider.message_allow('10 seconds')");
        }
        end.store(true, Ordering::Relaxed);
        while let Some(ended) = writers.join_next().await {
            ended.unwrap();
        }
        let total = stage.number("select sum(n) from counter");
        until(&stage, EVENTS, total).await;
        assert_eq!(stage.number(WAITING), 0, "{version:?}");
        let inverted = "select count(*) from (
            select key, convert_from(payload_bytes, 'utf8')::integer as n, row_number() over (partition by key order by id) as place
            from postrider.event) as events where n <> place";
        assert_eq!(stage.number(inverted), 0, "{version:?}: of {total}");
        let waited = "select last_value from postrider.waiting_event_id_seq";
        assert!(stage.number(waited) > 100, "{version:?}: {} have waited", stage.number(waited));
    }
}

#[tokio::test]
async fn without_anybody_who_took_messages_events_are_rows() {
    let stage = Stage::on(Version::V15).await;
    let mut owner = stage.owner("orders").await;
    let p = stage.session().await;
    assert_eq!(emit_message(&p, "k", "0").await, "row");
    assert_eq!(read_count(&mut owner, 1).await, ["0"]);
}

#[tokio::test]
async fn a_slot_that_is_gone_is_missed_in_words_and_what_waited_goes_on() {
    let server = logical(Version::V18);
    let stage = wal(server.create_database()).await;
    let p = stage.session().await;
    emit_message(&p, "k", "0").await;
    until(&stage, EVENTS, 1).await;
    let Stage { db, store } = stage;
    drop(store);
    let stage = Stage::in_database(db).await;
    until(&stage, "select count(*) from pg_stat_replication", 0).await;
    emit_message(&p, "k", "lost").await;
    stage.run("select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name like '%message'");
    stage.run("select setval('postrider.message_until', 3)");
    assert_eq!(emit_message(&p, "k", "1").await, "waiting");
    let stage = wal(stage.db).await;
    let mut owner = stage.owner("orders").await;
    emit_message(&p, "k", "2").await;
    assert_eq!(read_count(&mut owner, 3).await, numbers(0..3));
    assert_eq!(stage.number("select count(*) from postrider.audit where action = 'messages lost'"), 1);
}

#[tokio::test]
async fn ending_a_source_whose_slot_is_gone_says_what_is_lost_and_keeps_what_waits() {
    let server = logical(Version::V15);
    let Stage { db, store } = wal(server.create_database()).await;
    drop(store);
    let stage = Stage::in_database(db).await;
    until(&stage, "select count(*) from pg_stat_replication", 0).await;
    stage.run("select pg_drop_replication_slot(slot_name) from pg_replication_slots; select postrider.message_allow(null)");
    let p = stage.session().await;
    assert_eq!(emit_message(&p, "k", "0").await, "waiting");
    stage.store.source_drop("ada").await.unwrap();
    assert_eq!(emit_message(&p, "k", "1").await, "row");
    let mut owner = stage.owner("orders").await;
    assert_eq!(read_count(&mut owner, 2).await, numbers(0..2));
    assert_eq!(stage.number("select count(*) from postrider.audit where action = 'messages lost'"), 1);
}

/// The server is killed while messages come, again and again.
#[tokio::test]
async fn a_server_that_is_killed_loses_no_message_and_repeats_none() {
    let mut server = Server::start(Version::V15, Settings::honest().set("wal_level", "logical"));
    let stage = wal(server.create_database()).await;
    let mut emitted = 0;
    for round in 0..3 {
        let p = stage.session().await;
        for _ in 0..200 {
            emit_message(&p, "k", &emitted.to_string()).await;
            emitted += 1;
        }
        assert!(stage.number(EVENTS) <= emitted as i64, "{round}");
        server.kill_9();
        server.start_again();
        server.wait_until_it_answers();
    }
    until(&stage, EVENTS, emitted as i64).await;
    let mut owner = stage.owner("orders").await;
    assert_eq!(read_count(&mut owner, emitted).await, numbers(0..emitted));
    assert_eq!(stage.number("select count(*) from postrider.audit where action = 'messages lost'"), 0);
}

#[tokio::test]
async fn ending_the_source_stores_all_and_leaves_nothing_behind() {
    for version in Version::ALL {
        let server = logical(version);
        let stage = wal(server.create_database()).await;
        let mut owner = stage.owner("orders").await;
        until(&stage, SLOTS, 2).await;
        let p = stage.session().await;
        emit_message(&p, "k", "0").await;
        assert_eq!(read_count(&mut owner, 1).await, ["0"]);
        let busy = stage.store.source_drop("ada").await.unwrap_err().to_string();
        assert!(busy.contains("stop the relays"), "{busy}");
        owner.leave().await;
        let Stage { db, store } = stage;
        drop(store);
        let stage = Stage::in_database(db).await;
        until(&stage, "select count(*) from pg_stat_replication", 0).await;
        for n in 1..5 {
            assert_eq!(emit_message(&p, "k", &n.to_string()).await, "message");
        }
        let open = stage.session().await;
        run(&open, "begin").await;
        assert_eq!(emit_message(&open, "other", "open").await, "message");
        let dropping = {
            let store = stage.store.clone();
            tokio::spawn(async move { store.source_drop("ada").await })
        };
        until(&stage, "select (last_value = 2)::integer from postrider.message_until", 1).await;
        assert_eq!(emit_message(&p, "k", "5").await, "waiting", "{version:?}");
        run(&open, "commit").await;
        let removed = dropping.await.unwrap().unwrap();
        assert_eq!(removed.len(), 4, "{removed:?}");
        assert_eq!(emit_message(&p, "k", "6").await, "row", "{version:?}");
        assert_eq!((stage.number(SLOTS), stage.number("select count(*) from pg_publication")), (0, 0));
        let mut owner = Owner::of(&stage.store, "orders").await;
        let mut notes = read_count(&mut owner, 7).await;
        notes.retain(|note| note != "open");
        assert_eq!(notes, numbers(1..7), "{version:?}");
        assert_eq!(stage.store.source_drop("ada").await.unwrap(), Vec::<String>::new());
    }
}

/// Where the server keeps more of its log for the slot than the budget, events wait rather than make it more.
#[tokio::test]
async fn no_messages_are_written_while_their_slot_is_over_its_budget() {
    let server = logical(Version::V18);
    let stage = wal(server.create_database()).await;
    let Stage { db, store } = stage;
    drop(store);
    let narrow = options(&db).source(Source::Wal).wal_budget(1, OverBudget::Alarm);
    let stage = Stage { store: PostgresStore::open(narrow).await.unwrap(), db };
    until(&stage, "select (last_value = 2)::integer from postrider.message_until", 1).await;
    let p = stage.session().await;
    assert_eq!(emit_message(&p, "k", "0").await, "waiting");
    stage.store.subscription_create(NewSubscription::new("orders")).await.unwrap();
    let mut owner = Owner::of(&stage.store, "orders").await;
    assert_eq!(read_count(&mut owner, 1).await, ["0"], "those who wait are not forgotten");
}
