//! The log read from the write-ahead log, and from the table when that cannot be: nothing is lost, repeated
//! or overtaken by the change.

use std::time::{Duration, Instant};

use futures_util::FutureExt;
use postrider_core::settle::Room;
use postrider_core::{LogStore, Mode, NewSubscription, Store};
use postrider_postgres::{Durability, PostgresStore, Reading, Source};
use postrider_testkit::postgres::{Database, Server, Settings, Version};

use crate::log::Log;
use crate::stage::{AMPLE, Owner, Stage, connect, emit, note, options, run, until};

const PATIENCE: Duration = Duration::from_secs(60);
/// How far the slot is behind, in bytes.
pub(crate) const BEHIND: &str = "select pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::bigint
                      from pg_replication_slots where database = current_database()";
pub(crate) const SLOTS: &str =
    "select count(*) from pg_replication_slots where database = current_database()";

pub(crate) fn logical(version: Version) -> Server {
    Server::start(version, Settings::fast().set("wal_level", "logical"))
}

pub(crate) async fn open_wal(db: &Database) -> PostgresStore {
    PostgresStore::open(options(db).source(Source::Wal)).await.unwrap()
}

pub(crate) async fn wal_stage(db: Database) -> Stage {
    Stage { store: open_wal(&db).await, db }
}

/// Reads on until a condition holds; what was read meanwhile.
pub(crate) async fn read_until(
    owner: &mut Owner,
    what: &str,
    mut holds: impl FnMut(&Owner, &[String]) -> bool,
) -> Vec<String> {
    let mut notes = Vec::new();
    let reading = async {
        while !holds(owner, &notes) {
            match owner.store.fetch(&owner.hold, owner.at, AMPLE).await {
                Ok(chunk) => {
                    owner.at = chunk.end;
                    notes.extend(chunk.events.iter().map(|event| note(&event.payload)));
                }
                // The first one to use a connection may be the one who learns that it was cut.
                Err(error) => assert!(error.is_retryable(), "{error}"),
            }
            // tidy: sleep because the stream comes when it can
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let done = tokio::time::timeout(PATIENCE, reading).await;
    assert!(done.is_ok(), "never {what}: {notes:?}, {:?}", owner.store.reading());
    notes
}

/// Reads on until events come from the stream: a reader has read the table since the stream began.
pub(crate) async fn until_streaming(owner: &mut Owner) -> Vec<String> {
    let streams = |owner: &Owner, _: &[String]| matches!(owner.store.reading().0, Reading::Stream { .. });
    let mut notes = read_until(owner, "streaming", streams).await;
    notes.extend(owner.read().await);
    notes
}

pub(crate) async fn read_count(owner: &mut Owner, count: usize) -> Vec<String> {
    read_until(owner, "enough", |_, notes| notes.len() >= count).await
}

/// No session sees a commit that waits for a standby, but the write-ahead log tells of it. Every commit is like
/// that for an instant, between its flush and the moment from which others see it. A store that trusts its
/// producers meets it here.
#[tokio::test]
async fn what_is_decoded_before_it_is_visible_is_delivered_once() {
    for version in Version::ALL {
        let server = logical(version);
        let db = server.create_database();
        let trusting = options(&db).source(Source::Wal).durability(Durability::Trust);
        let stage = Stage { store: PostgresStore::open(trusting).await.unwrap(), db };
        let mut owner = stage.owner("orders").await;
        stage.store.subscription_create(NewSubscription::new("late")).await.unwrap();
        until_streaming(&mut owner).await;
        let p = stage.session().await;
        run(&p, "set application_name = 'producer'").await;
        stage.run("alter system set synchronous_standby_names = 'nobody'");
        stage.run("select pg_reload_conf()");
        let waiting = tokio::spawn(async move {
            // The server may not have heard of its standby yet.
            for n in 0.. {
                emit(&p, "k", &format!("{n}")).await;
            }
        });
        until(&stage, "select count(*) from pg_stat_activity where application_name = 'producer' and wait_event = 'SyncRep'", 1)
            .await;
        let visible = stage.number("select count(*) from postrider.event");
        let notes =
            read_until(&mut owner, "told of what is not visible", |_, notes| notes.len() as i64 > visible)
                .await;
        assert_eq!(
            stage.number("select count(*) from postrider.event"),
            visible,
            "{version:?}: it is not visible"
        );
        let wanted: Vec<String> = (0..=visible).map(|n| n.to_string()).collect();
        assert_eq!(notes, wanted, "{version:?}");
        // A subscription that reads the table now does not find the event, and does not go past it either.
        let mut late = Owner::of(&stage.store, "late").await;
        for _ in 0..20 {
            let chunk = late.store.fetch(&late.hold, late.at, AMPLE).await.unwrap();
            assert!(chunk.events.is_empty(), "{version:?}");
        }
        stage.run("select pg_terminate_backend(pid) from pg_stat_replication");
        let again = stage.store.fetch(&owner.hold, owner.at, AMPLE).await.unwrap();
        assert!(again.events.is_empty(), "{version:?}");
        stage.run("alter system reset synchronous_standby_names");
        stage.run("select pg_reload_conf()");
        until(&stage, &format!("select (count(*) > {visible})::integer from postrider.event"), 1).await;
        waiting.abort();
        let last = connect(&stage.db.url).await;
        emit(&last, "k", "last").await;
        let is_last = |_: &Owner, notes: &[String]| notes.last().is_some_and(|note| note == "last");
        let rest = read_until(&mut owner, "at the end", is_last).await;
        assert!(!rest.contains(&visible.to_string()), "{version:?}: repeated in {rest:?}");
        let all = read_until(&mut late, "at the end", is_last).await;
        let mut wanted: Vec<String> = (0..all.len() - 1).map(|n| n.to_string()).collect();
        wanted.push("last".to_owned());
        assert_eq!(all, wanted, "{version:?}");
    }
}

/// Rows by plain SQL that break a limit: the stream brings their beginning, and no more of them is kept.
#[tokio::test]
async fn rows_that_are_too_large_come_from_the_stream_without_what_is() {
    for version in Version::ALL {
        let server = logical(version);
        let stage = wal_stage(server.create_database()).await;
        let mut owner = stage.owner("orders").await;
        until_streaming(&mut owner).await;
        let p = stage.session().await;
        run(
            &p,
            "insert into postrider.event (topic, payload) select 'order', to_json(repeat('x', 64 << 20));
             insert into postrider.event (topic, payload_bytes) select 'order', convert_to(repeat('x', 5 << 20), 'UTF8');
             insert into postrider.event (topic, headers) select 'order', json_build_object('h', repeat('x', 9 << 20));
             insert into postrider.event (topic, payload, payload_bytes) values ('order', '{}', '')",
        )
        .await;
        emit(&p, "k", "a neighbour").await;
        let mut events = Vec::new();
        let all = async {
            while events.len() < 5 {
                let chunk = owner.store.fetch(&owner.hold, owner.at, AMPLE).await.unwrap();
                owner.at = chunk.end;
                events.extend(chunk.events);
                // tidy: sleep because the stream comes when it can
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(PATIENCE, all).await.expect("all of them come");
        assert!(matches!(stage.store.reading().0, Reading::Stream { .. }), "{version:?}");
        let flaws: Vec<_> =
            events.iter().map(|event| event.flaw.as_ref().map(|flaw| flaw.reason())).collect();
        let wanted = [
            Some("payload has 67,108,866 bytes, the limit is 1,048,576"),
            Some("payload has 5,242,880 bytes, the limit is 1,048,576"),
            Some("the headers have 9,437,194 bytes, the limit is 131,072"),
            Some("an event has a payload or payload_bytes, not both"),
            None,
        ];
        assert_eq!(flaws, wanted, "{version:?}");
        assert_eq!(note(&events[4].payload), "a neighbour");
    }
}

/// Its commit is on the disk of a server that may end now, and the standby which takes over has never heard of it.
#[tokio::test]
async fn what_waits_for_a_standby_is_not_handed_out() {
    let server = logical(Version::V15);
    let stage = wal_stage(server.create_database()).await;
    let mut owner = stage.owner("orders").await;
    until_streaming(&mut owner).await;
    until(&stage, "select count(*) from postrider.new_slot", 0).await;
    stage.run("alter system set synchronous_standby_names = 'nobody'");
    stage.run("select pg_reload_conf()");
    // The relay has asked since: it is what its look begins with.
    let asked = "select count(*) from pg_stat_activity where application_name = 'postrider/reader'
                 and query_start > pg_conf_load_time() + interval '100 ms'";
    until(&stage, asked, 1).await;
    let p = stage.session().await;
    run(&p, "set application_name = 'producer'").await;
    let waits = tokio::spawn(async move {
        emit(&p, "k", "waits").await;
        p
    });
    until(&stage, "select count(*) from pg_stat_activity where application_name = 'producer' and wait_event = 'SyncRep'", 1)
        .await;
    // Long enough for it to be told, and for the table to be read beside.
    let began = Instant::now();
    let a_while = |_: &Owner, _: &[String]| began.elapsed() > Duration::from_secs(3);
    assert_eq!(read_until(&mut owner, "later", a_while).await.len(), 0);
    assert!(matches!(stage.store.reading(), (Reading::Stream { .. }, 1)), "{:?}", stage.store.reading());
    stage.run("alter system reset synchronous_standby_names");
    stage.run("select pg_reload_conf()");
    let p = waits.await.unwrap();
    assert_eq!(read_count(&mut owner, 1).await, ["waits"]);
    emit(&p, "k", "after").await;
    assert_eq!(read_count(&mut owner, 1).await, ["after"]);
}

/// A reader without room does not look. Otherwise it would be woken for ever, on a thread that others wait for.
#[tokio::test]
async fn nobody_is_woken_again_and_again_by_what_nobody_takes() {
    let server = logical(Version::V15);
    let stage = wal_stage(server.create_database()).await;
    let mut owner = stage.owner("orders").await;
    until_streaming(&mut owner).await;
    let p = stage.session().await;
    for n in 0..3 {
        emit(&p, "k", &n.to_string()).await;
        tokio::time::timeout(PATIENCE, stage.store.wake()).await.expect("the stream tells of it");
        let again = (0..10).filter(|_| stage.store.wake().now_or_never().is_some()).count();
        assert!(again <= 1, "once for whoever waited, and once for one who did not: {again}");
    }
    assert_eq!(read_count(&mut owner, 3).await, ["0", "1", "2"]);
}

/// How far a transaction was delivered is known to the store and not to the slot, which is past it.
#[tokio::test]
async fn a_transaction_of_which_half_was_done_is_gone_on_with_in_its_middle() {
    let server = logical(Version::V15);
    let stage = wal_stage(server.create_database()).await;
    let mut owner = stage.owner("orders").await;
    until_streaming(&mut owner).await;
    stage.run(
        "insert into postrider.event (topic, type, key, payload_bytes)
         select 'order', 'order', 'k', convert_to(n::text, 'utf8') from generate_series(0, 2999) as n",
    );
    let half = Room { events: 2_000, ..AMPLE };
    let mut notes = Vec::new();
    while notes.is_empty() {
        let chunk = owner.step(half).await.unwrap();
        notes.extend(chunk.events.iter().map(|event| note(&event.payload)));
    }
    assert_eq!((notes.len(), stage.store.reading().1), (2_000, 1), "from the stream");
    owner.settle().await.unwrap();
    until(&stage, &format!("select (({BEHIND}) < 10000)::integer"), 1).await;
    // It dies without a word.
    let Stage { db, store } = stage;
    drop((store, owner));
    let stage = wal_stage(db).await;
    let mut owner = Owner::of(&stage.store, "orders").await;
    notes.extend(read_count(&mut owner, 1_000).await);
    let wanted: Vec<String> = (0..3_000).map(|n| n.to_string()).collect();
    assert_eq!(notes, wanted, "each once, and the rest of them again");
    assert_eq!(owner.read().await.len(), 0);
}

#[tokio::test]
async fn a_slot_is_not_held_by_what_others_write_nor_by_who_does_not_read() {
    for version in Version::ALL {
        let server = logical(version);
        let stage = wal_stage(server.create_database()).await;
        let mut owner = stage.owner("orders").await;
        until_streaming(&mut owner).await;
        stage.run("create table other as select repeat('x', 1000) as text from generate_series(1, 20000)");
        assert!(stage.number("select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint") > 20_000_000);
        until(&stage, &format!("select (({BEHIND}) < 1000000)::integer"), 1).await;
        // No subscription reads these events, and there are more of them than a relay keeps.
        stage.run(
            "insert into postrider.event (topic, type, payload_bytes)
             select 'order', 'order', convert_to(repeat('x', 1000), 'utf8') from generate_series(1, 9000)",
        );
        for n in 0..4 {
            stage.run(&format!(
                "insert into postrider.event (topic, type, payload_bytes)
                 select 'order', 'order', convert_to('{n}' || repeat('x', 1000), 'utf8') from generate_series(1, 3000)"
            ));
        }
        until(&stage, &format!("select (({BEHIND}) < 1000000)::integer"), 1).await;
        let notes = read_count(&mut owner, 21_000).await;
        assert_eq!(notes.len(), 21_000, "{version:?}");
        assert_eq!(owner.read().await.len(), 0, "{version:?}");
    }
}

/// Writes more than a server keeps that is told to keep 16 MB.
pub(crate) fn overflow(stage: &Stage) {
    for _ in 0..6 {
        stage.run("create table filler as select repeat('x', 1000) as text from generate_series(1, 12000)");
        stage.run("drop table filler; select pg_switch_wal()");
    }
    // tidy: foreign because it is the server's
    stage.run("checkpoint");
}

pub(crate) fn narrow(version: Version) -> Server {
    let settings = Settings::fast().set("wal_level", "logical").set("max_slot_wal_keep_size", "16MB");
    Server::start(version, settings.set("max_wal_size", "32MB").set("min_wal_size", "32MB"))
}

#[tokio::test]
async fn a_slot_that_the_server_has_given_up_is_made_anew_and_nothing_is_missed() {
    for version in Version::ALL {
        comes_back_to_a_lost_slot(narrow(version), async |stage| overflow(stage)).await;
    }
}

/// From release 18 on a server may give up slots that were unused for a while.
#[tokio::test]
async fn a_slot_that_was_idle_for_too_long_is_made_anew_and_nothing_is_missed() {
    let settings = Settings::fast().set("wal_level", "logical").set("idle_replication_slot_timeout", "1s");
    comes_back_to_a_lost_slot(Server::start(Version::V18, settings), async |stage| {
        let is_idle =
            "select (inactive_since < clock_timestamp() - interval '2 s')::integer from pg_replication_slots";
        until(stage, is_idle, 1).await;
        // tidy: foreign because it is the server's
        stage.run("checkpoint");
    })
    .await;
}

/// A relay is away, its slot is lost, and it comes back.
async fn comes_back_to_a_lost_slot(server: Server, lose: impl AsyncFn(&Stage)) {
    let version = server.version();
    let stage = wal_stage(server.create_database()).await;
    let mut owner = stage.owner("orders").await;
    until_streaming(&mut owner).await;
    let p = stage.session().await;
    emit(&p, "k", "before").await;
    assert_eq!(read_count(&mut owner, 1).await, ["before"]);
    owner.leave().await;
    let Stage { db, store } = stage;
    drop(store);
    let stage = Stage::in_database(db).await;
    until(&stage, "select count(*) from pg_stat_replication", 0).await;
    emit(&p, "k", "meanwhile").await;
    lose(&stage).await;
    assert_eq!(stage.text("select wal_status from pg_replication_slots"), "lost", "{version:?}");
    let stage = wal_stage(stage.db).await;
    let mut owner = Owner::of(&stage.store, "orders").await;
    let mut notes = until_streaming(&mut owner).await;
    emit(&p, "k", "after").await;
    notes.extend(read_until(&mut owner, "at the end", |_, notes| notes.contains(&"after".to_owned())).await);
    assert_eq!(notes, ["meanwhile", "after"], "{version:?}");
    let audit = "select string_agg(action, ',' order by id) from postrider.audit where action like 'slot%'";
    assert_eq!(stage.text(audit), "slot create,slot drop,slot create", "{version:?}");
}

#[tokio::test]
async fn a_slot_in_use_is_left_alone_and_taken_when_it_is_free() {
    let server = logical(Version::V18);
    let first = wal_stage(server.create_database()).await;
    let mut owner = first.owner("orders").await;
    until_streaming(&mut owner).await;
    let second = Stage { store: open_wal(&first.db).await, db: first.db.clone() };
    let mut other = second.owner("others").await;
    let p = first.session().await;
    emit(&p, "k", "1").await;
    assert_eq!(read_count(&mut other, 1).await, ["1"], "by the table");
    let in_use = |owner: &Owner, _: &[String]| matches!(&owner.store.reading().0, Reading::Without { why } if why.contains("followed by another relay"));
    read_until(&mut other, "told that the slot is in use", in_use).await;
    assert_eq!(read_count(&mut owner, 1).await, ["1"]);
    owner.leave().await;
    drop(first.store);
    until_streaming(&mut other).await;
    emit(&p, "k", "2").await;
    assert_eq!(read_count(&mut other, 1).await, ["2"]);
    assert_eq!(second.number(SLOTS), 1);
}

#[tokio::test]
async fn the_table_is_read_while_a_slot_waits_for_transactions_and_they_are_named() {
    let log = Log::listen();
    let server = logical(Version::V15);
    let stage = wal_stage(server.create_database()).await;
    let (open, p) = (stage.session().await, stage.session().await);
    run(&open, "begin").await;
    emit(&open, "a", "open").await;
    let mut owner = stage.owner("orders").await;
    emit(&p, "b", "1").await;
    assert_eq!(read_count(&mut owner, 1).await, ["1"]);
    until(&stage, SLOTS, 1).await;
    assert!(!matches!(stage.store.reading().0, Reading::Stream { .. }), "{:?}", stage.store.reading());
    let pid: i32 = open.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    log.until_says(&format!("waits for a transaction to end: pid {pid} in database {}", stage.db.name)).await;
    run(&open, "commit").await;
    let notes = until_streaming(&mut owner).await;
    emit(&p, "b", "2").await;
    let mut all = notes;
    all.extend(read_until(&mut owner, "at the end", |_, notes| notes.contains(&"2".to_owned())).await);
    assert_eq!(all, ["open", "2"]);
}

#[tokio::test]
async fn large_prepared_and_undone_transactions() {
    let settings = Settings::fast().set("wal_level", "logical").set("max_prepared_transactions", "5");
    let server = Server::start(Version::V15, settings);
    let stage = wal_stage(server.create_database()).await;
    let mut owner = stage.owner("orders").await;
    until_streaming(&mut owner).await;
    let (p, q) = (stage.session().await, stage.session().await);
    run(&p, "begin").await;
    emit(&p, "a", "prepared").await;
    run(&p, "prepare transaction 'one'").await;
    run(&q, "begin").await;
    emit(&q, "b", "undone").await;
    run(&q, "rollback").await;
    run(&q, "begin; savepoint one").await;
    emit(&q, "b", "undone within").await;
    run(&q, "rollback to one").await;
    emit(&q, "b", "kept").await;
    run(&q, "commit").await;
    assert_eq!(read_count(&mut owner, 1).await, ["kept"]);
    let many = "insert into postrider.event (topic, type, payload_bytes)
                select 'order', 'order', convert_to(n::text, 'utf8') from generate_series(1, 25000) as n";
    run(&q, many).await;
    let wanted: Vec<String> = (1..=25_000).map(|n| n.to_string()).collect();
    assert_eq!(
        read_count(&mut owner, 25_000).await,
        wanted,
        "too many to be kept, so they are read from the table"
    );
    run(&q, "commit prepared 'one'").await;
    assert_eq!(read_count(&mut owner, 1).await, ["prepared"]);
    assert_eq!(owner.read().await.len(), 0);
}

/// What is told ahead counts when it commits, in the order of commits, and not before; what is undone, never.
/// The server keeps nothing of it on its disk.
#[tokio::test]
async fn large_transactions_that_are_told_ahead_of_their_commit() {
    const TOLD: &str = "select stream_txns from pg_stat_replication_slots";
    const SPILLED: &str = "select spill_txns from pg_stat_replication_slots";
    for version in Version::ALL {
        let settings = Settings::fast().set("wal_level", "logical");
        let server = Server::start(version, settings.set("logical_decoding_work_mem", "64kB"));
        let db = server.create_database();
        let ahead = options(&db).source(Source::Wal).wal_streaming(true);
        let stage = Stage { store: PostgresStore::open(ahead).await.unwrap(), db };
        let mut owner = stage.owner("orders").await;
        until_streaming(&mut owner).await;
        let many = |name: &str| {
            format!(
                "insert into postrider.event (topic, type, payload_bytes)
                 select 'order', 'order', convert_to('{name} ' || n, 'utf8') from generate_series(1, 3000) as n"
            )
        };
        let (p, q, r) = (stage.session().await, stage.session().await, stage.session().await);
        run(&p, "begin").await;
        run(&p, &many("kept")).await;
        run(&q, "begin").await;
        run(&q, &many("undone")).await;
        run(&p, "savepoint one").await;
        run(&p, &many("undone within")).await;
        run(&p, "rollback to one").await;
        emit(&r, "a", "small").await;
        assert_eq!(read_count(&mut owner, 1).await, ["small"], "the others are open");
        until(&stage, &format!("select (({TOLD}) >= 2)::integer"), 1).await;
        run(&q, "rollback").await;
        run(&p, "commit").await;
        let wanted: Vec<String> = (1..=3_000).map(|n| format!("kept {n}")).collect();
        assert_eq!(read_count(&mut owner, 3_000).await, wanted);
        emit(&r, "a", "last").await;
        assert_eq!(read_count(&mut owner, 1).await, ["last"]);
        assert!(matches!(stage.store.reading(), (Reading::Stream { .. }, 1)), "{:?}", stage.store.reading());
        until(&stage, &format!("select (({BEHIND}) < 100000)::integer"), 1).await;
        assert_eq!(stage.number(SPILLED), 0);
    }
}

/// A position must not name every transaction that was not an event's.
#[tokio::test]
async fn positions_stay_small_however_many_transactions_lie_between() {
    let server = logical(Version::V15);
    let stage = wal_stage(server.create_database()).await;
    let mut owner = stage.owner("orders").await;
    until_streaming(&mut owner).await;
    let p = stage.session().await;
    for n in 0..3 {
        stage.run("do $$ begin for i in 1..3000 loop perform pg_current_xact_id(); commit; end loop; end $$");
        emit(&p, "k", &n.to_string()).await;
        assert_eq!(read_count(&mut owner, 1).await, [n.to_string()]);
        owner.settle().await.unwrap();
    }
    let longest = "select max(length(to_snapshot::text)) from postrider.position_a";
    assert!(stage.number(longest) < 3_000, "{}", stage.number(longest));
}

#[tokio::test]
async fn a_publication_that_was_dropped_comes_back_with_a_new_slot() {
    let server = logical(Version::V18);
    let stage = wal_stage(server.create_database()).await;
    let mut owner = stage.owner("orders").await;
    until_streaming(&mut owner).await;
    stage.run("drop publication postrider");
    let p = stage.session().await;
    for n in 0..20 {
        emit(&p, "k", &n.to_string()).await;
    }
    let wanted: Vec<String> = (0..20).map(|n| n.to_string()).collect();
    assert_eq!(read_count(&mut owner, 20).await, wanted);
    let back = |owner: &Owner, _: &[String]| {
        let (reading, switches) = owner.store.reading();
        switches >= 3 && matches!(reading, Reading::Stream { .. })
    };
    read_until(&mut owner, "back", back).await;
    assert_eq!(stage.number("select count(*) from pg_publication"), 1);
    emit(&p, "k", "after").await;
    assert_eq!(read_count(&mut owner, 1).await, ["after"]);
}

/// No reader would follow the slot, and it would keep the server from removing its log.
#[tokio::test]
async fn no_slot_is_made_for_those_who_only_feed_queues() {
    let server = logical(Version::V18);
    let stage = wal_stage(server.create_database()).await;
    let queue = NewSubscription::new("queue").mode(Mode::Queue);
    stage.store.subscription_create(queue).await.unwrap();
    let mut feeder = Owner::of(&stage.store, "queue").await;
    let p = stage.session().await;
    for n in 0..50 {
        emit(&p, "k", &n.to_string()).await;
        assert_eq!(read_count(&mut feeder, 1).await, [n.to_string()]);
    }
    assert_eq!((stage.number(SLOTS), stage.number("select count(*) from pg_publication")), (0, 0));
    // The first subscription in mode `log` gets a slot.
    let mut owner = stage.owner("orders").await;
    until_streaming(&mut owner).await;
    assert_eq!(stage.number(SLOTS), 1);
}

#[tokio::test]
async fn a_server_that_writes_too_little_is_read_by_its_table() {
    let stage = wal_stage(postrider_testkit::postgres::shared(Version::V15).create_database()).await;
    let mut owner = stage.owner("orders").await;
    let p = stage.session().await;
    emit(&p, "k", "1").await;
    assert_eq!(read_count(&mut owner, 1).await, ["1"]);
    let told = |owner: &Owner, _: &[String]| matches!(&owner.store.reading().0, Reading::Without { why } if why.contains("wal_level = logical"));
    read_until(&mut owner, "told why", told).await;
    assert_eq!(stage.number(SLOTS), 0);
}
