//! What can become of a slot, by the names that such faults have elsewhere: whatever it is, events come, each
//! once and in order.

use std::fs;
use std::process::Command;
use std::time::Duration;

use postrider_core::{LogStore, Store};
use postrider_postgres::{OverBudget, PostgresStore, Reading, Source};
use postrider_testkit::postgres::{Server, Settings, Version};
use postrider_testkit::tcp_proxy::Proxy;

use crate::sources::{
    BEHIND, SLOTS, logical, narrow, open_wal, overflow, read_count, read_until, until_streaming, wal_stage,
};
use crate::stage::{Owner, Stage, emit, options, run, until};

fn numbers(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|n| n.to_string()).collect()
}

fn reads_without(owner: &Owner, word: &str) -> bool {
    matches!(&owner.store.reading().0, Reading::Without { why } if why.contains(word))
}

/// Traffic only in another database of the same server.
#[tokio::test]
async fn an_idle_slot_advances_while_another_database_writes() {
    let server = logical(Version::V15);
    let stage = wal_stage(server.create_database()).await;
    let mut owner = stage.owner("orders").await;
    until_streaming(&mut owner).await;
    let other = server.create_database();
    other.query("create table filler as select repeat('x', 1000) as text from generate_series(1, 20000)");
    assert!(stage.number("select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint") > 20_000_000);
    until(&stage, &format!("select (({BEHIND}) < 1000000)::integer"), 1).await;
    assert_eq!(stage.store.reading().1, 1, "nothing has changed meanwhile");
}

/// All is confirmed, and the server keeps its log nevertheless: people are told for whom.
#[tokio::test]
async fn an_open_transaction_that_makes_the_server_keep_its_log_is_named() {
    let server = logical(Version::V18);
    let stage = wal_stage(server.create_database()).await;
    let mut owner = stage.owner("orders").await;
    until_streaming(&mut owner).await;
    let open = stage.session().await;
    run(&open, "begin").await;
    emit(&open, "k", "open").await;
    let pid: i32 = open.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    stage.run("create table filler as select repeat('x', 1000) as text from generate_series(1, 20000)");
    let narrow = options(&stage.db).wal_budget(1_000_000, OverBudget::Alarm);
    let store = PostgresStore::open(narrow).await.unwrap();
    let found = store.check().await.unwrap();
    assert!(found.iter().any(|line| line.contains(&format!("that of pid {pid}"))), "{found:?}");
    let report = store.stats().await.unwrap();
    let [slot] = report.slots.as_slice() else { panic!("{:?}", report.slots) };
    assert_eq!((slot.followed, slot.switches), (Some(true), 1), "{slot:?}");
    assert!(slot.kept_bytes > 1_000_000, "{slot:?}");
    assert!(slot.reading.as_ref().is_some_and(|(reading, _)| reading == "the write-ahead log"), "{slot:?}");
    run(&open, "commit").await;
    assert_eq!(read_count(&mut owner, 1).await, ["open"]);
}

/// The server has its own budget, and ends the session that follows a slot that exceeds it.
#[tokio::test]
async fn a_slot_that_the_server_gives_up_under_its_follower_is_made_anew() {
    for version in Version::ALL {
        let server = narrow(version);
        let stage = wal_stage(server.create_database()).await;
        let mut owner = stage.owner("orders").await;
        until_streaming(&mut owner).await;
        let (open, p) = (stage.session().await, stage.session().await);
        run(&open, "begin; select pg_current_xact_id()").await;
        overflow(&stage);
        emit(&p, "k", "0").await;
        assert_eq!(read_count(&mut owner, 1).await, ["0"], "{version:?}: by the table");
        read_until(&mut owner, "without", |owner, _| reads_without(owner, "")).await;
        run(&open, "commit").await;
        until_streaming(&mut owner).await;
        emit(&p, "k", "1").await;
        assert_eq!(read_count(&mut owner, 1).await, ["1"], "{version:?}");
        let audit =
            "select string_agg(action, ',' order by id) from postrider.audit where action like 'slot%'";
        assert_eq!(stage.text(audit), "slot create,slot drop,slot create", "{version:?}");
    }
}

#[tokio::test]
async fn a_slot_over_its_budget_is_left_or_made_anew_as_chosen() {
    for over in [OverBudget::Leave, OverBudget::Drop] {
        let server = logical(Version::V15);
        let db = server.create_database();
        let narrow = options(&db).source(Source::Wal).wal_budget(16 * 1024 * 1024, over);
        let stage = Stage { store: PostgresStore::open(narrow).await.unwrap(), db };
        let mut owner = stage.owner("orders").await;
        until_streaming(&mut owner).await;
        let slot = stage.text("select slot_name from pg_replication_slots");
        let (open, p) = (stage.session().await, stage.session().await);
        run(&open, "begin; select pg_current_xact_id()").await;
        stage.run("create table filler as select repeat('x', 1000) as text from generate_series(1, 40000)");
        read_until(&mut owner, "over the budget", |owner, _| reads_without(owner, "budget")).await;
        emit(&p, "k", "0").await;
        assert_eq!(read_count(&mut owner, 1).await, ["0"], "{over:?}: by the table");
        run(&open, "commit").await;
        if over == OverBudget::Leave {
            read_until(&mut owner, "told", |owner, _| reads_without(owner, "until somebody drops it")).await;
            stage.run(&format!("select pg_drop_replication_slot('{slot}')"));
        }
        until_streaming(&mut owner).await;
        emit(&p, "k", "1").await;
        assert_eq!(read_count(&mut owner, 1).await, ["1"], "{over:?}");
        assert_eq!(stage.number(SLOTS), 1, "{over:?}");
        let drops = stage.number("select count(*) from postrider.audit where action = 'slot drop'");
        assert_eq!(drops, i64::from(over == OverBudget::Drop), "{over:?}");
        assert_eq!(stage.number("select count(*) from postrider.audit where action = 'slot create'"), 2);
    }
}

#[tokio::test]
async fn a_standby_can_take_slots_over() {
    let server = logical(Version::V18);
    let stage = wal_stage(server.create_database()).await;
    let mut owner = stage.owner("orders").await;
    until_streaming(&mut owner).await;
    assert_eq!(stage.number("select count(*) from pg_replication_slots where failover"), 1);
}

/// The machine of the one who follows the slot is gone, and the server does not know.
#[tokio::test]
async fn a_slot_whose_follower_is_half_open_is_taken_over() {
    let server = logical(Version::V15);
    let stage = Stage::in_database(server.create_database()).await;
    let proxy = Proxy::start(stage.db.address());
    let far = open_wal(&stage.db.through(proxy.address())).await;
    let first = Stage { store: far, db: stage.db.clone() };
    let mut owner = first.owner("first").await;
    until_streaming(&mut owner).await;
    proxy.black_hole();
    let second = wal_stage(stage.db.clone()).await;
    let mut owner = second.owner("second").await;
    until_streaming(&mut owner).await;
    let p = second.session().await;
    emit(&p, "k", "0").await;
    assert_eq!(read_count(&mut owner, 1).await, ["0"]);
    assert_eq!(stage.number("select count(*) from postrider.audit where action = 'slot takeover'"), 1);
}

/// The receiver takes nothing for three times as long as the server waits for a word.
#[tokio::test]
async fn a_slow_receiver_does_not_lose_the_connection() {
    let settings = Settings::fast().set("wal_level", "logical").set("wal_sender_timeout", "2s");
    let server = Server::start(Version::V15, settings);
    let stage = wal_stage(server.create_database()).await;
    let mut owner = stage.owner("orders").await;
    until_streaming(&mut owner).await;
    let (_, switches) = stage.store.reading();
    // Not by blocking this thread, which is the follower's as well.
    let p = stage.session().await;
    let many = "insert into postrider.event (topic, type, key, payload_bytes)
                select 'order', 'order', 'k', convert_to(n::text, 'utf8') from generate_series(0, 8999) as n";
    run(&p, many).await;
    for n in 9_000..9_100 {
        emit(&p, "k", &n.to_string()).await;
    }
    let pid = stage.text("select active_pid from pg_replication_slots");
    // tidy: sleep because the receiver is slow
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(read_count(&mut owner, 9_100).await, numbers(0..9_100));
    assert_eq!(stage.store.reading().1, switches, "it was never without the stream");
    assert_eq!(stage.text("select active_pid from pg_replication_slots"), pid);
}

/// The process at the server that tells of the log is alive, connected, and says nothing.
#[tokio::test]
async fn a_stream_that_has_died_without_a_word_is_not_waited_for() {
    let server = logical(Version::V15);
    let stage = wal_stage(server.create_database()).await;
    let mut owner = stage.owner("orders").await;
    until_streaming(&mut owner).await;
    let pid = stage.text("select active_pid from pg_replication_slots");
    let signal = |name: &str| assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    signal("-STOP");
    let p = stage.session().await;
    for n in 0..20 {
        emit(&p, "k", &n.to_string()).await;
    }
    assert_eq!(read_count(&mut owner, 20).await, numbers(0..20), "by the table");
    signal("-CONT");
    emit(&p, "k", "20").await;
    assert_eq!(read_count(&mut owner, 1).await, ["20"], "none of them again");
}

/// How often a connection for replication was made.
fn attempts(server: &Server) -> usize {
    let log = fs::read_to_string(server.folder().join("log")).unwrap();
    log.lines().filter(|line| line.contains("replication connection authorized")).count()
}

#[tokio::test]
async fn a_slot_of_another_plugin_is_left_alone_and_not_asked_for_again_and_again() {
    let settings = Settings::fast().set("wal_level", "logical").set("log_connections", "on");
    let server = Server::start(Version::V15, settings.set("log_min_messages", "log"));
    let db = server.create_database();
    db.query(
        "select pg_create_logical_replication_slot('postrider_' || oid, 'test_decoding') from pg_database
         where datname = current_database()",
    );
    let stage = wal_stage(db).await;
    let mut owner = stage.owner("orders").await;
    let p = stage.session().await;
    emit(&p, "k", "0").await;
    assert_eq!(read_count(&mut owner, 1).await, ["0"]);
    read_until(&mut owner, "told why", |owner, _| reads_without(owner, "another program's")).await;
    assert_eq!(stage.text("select plugin from pg_replication_slots"), "test_decoding");
    let began = stage.text("select clock_timestamp()");
    let later = format!("select (clock_timestamp() > '{began}'::timestamptz + interval '3 s')::integer");
    until(&stage, &later, 1).await;
    let attempts = attempts(&server);
    assert!(
        (2..=5).contains(&attempts),
        "{attempts} attempts: each waits for twice as long as the one before"
    );
}

#[tokio::test]
async fn a_slot_that_is_dropped_under_its_follower_is_made_anew() {
    let server = logical(Version::V18);
    let stage = wal_stage(server.create_database()).await;
    let mut owner = stage.owner("orders").await;
    until_streaming(&mut owner).await;
    stage.run(
        "select pg_terminate_backend(active_pid, 5000) from pg_replication_slots;
         select pg_drop_replication_slot(slot_name) from pg_replication_slots",
    );
    let p = stage.session().await;
    for n in 0..20 {
        emit(&p, "k", &n.to_string()).await;
    }
    assert_eq!(read_count(&mut owner, 20).await, numbers(0..20));
    until_streaming(&mut owner).await;
    emit(&p, "k", "20").await;
    assert_eq!(read_count(&mut owner, 1).await, ["20"]);
    assert_eq!(stage.number("select count(*) from postrider.audit where action = 'slot create'"), 2);
}

#[tokio::test]
async fn a_server_that_is_killed_while_it_tells_loses_nothing_and_repeats_nothing() {
    for version in Version::ALL {
        let mut server = Server::start(version, Settings::honest().set("wal_level", "logical"));
        let stage = wal_stage(server.create_database()).await;
        let mut owner = stage.owner("orders").await;
        until_streaming(&mut owner).await;
        let (mut emitted, mut notes) = (0, Vec::new());
        for _ in 0..3 {
            let p = stage.session().await;
            for _ in 0..100 {
                emit(&p, "k", &emitted.to_string()).await;
                emitted += 1;
            }
            notes.extend(read_count(&mut owner, emitted - 50 - notes.len()).await);
            owner.settle().await.unwrap();
            // A settle is not waited for, but this is, and it comes after.
            stage.run("select pg_logical_emit_message(true, 'flush', '')");
            server.kill_9();
            server.start_again();
            // What is remembered goes with the connection, so that the owner begins where the store says.
            while let Err(error) = stage.store.member_join("ada").await {
                assert!(error.is_retryable(), "{error}");
            }
            owner = Owner::of(&stage.store, "orders").await;
        }
        notes.extend(read_count(&mut owner, emitted - notes.len()).await);
        assert_eq!(notes, numbers(0..emitted), "{version:?}");
        assert_eq!(owner.read().await.len(), 0, "{version:?}");
    }
}
