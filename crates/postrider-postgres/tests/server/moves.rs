//! The database goes on elsewhere: on a standby, at a point in time, on another server from a dump.

use std::collections::BTreeSet;
use std::fs::File;
use std::process::Stdio;

use postrider_core::{ErrorKind, NewSubscription, Store};
use postrider_postgres::PostgresStore;
use postrider_testkit::postgres::{Database, Server, Settings, Version};
use postrider_testkit::tcp_proxy::Proxy;

use crate::stage::{Owner, Stage, connect, emit, open, options, run, until};

fn audited(stage: &Stage) -> String {
    stage.text("select string_agg(action || ' ' || detail, ', ' order by id) from postrider.audit")
}

/// One note per key, so that the order of keys does not matter.
async fn emit_all(db: &Database, notes: &[&str]) {
    let session = connect(&db.url).await;
    for note in notes {
        emit(&session, note, note).await;
    }
}

fn set(notes: impl IntoIterator<Item = impl Into<String>>) -> BTreeSet<String> {
    notes.into_iter().map(Into::into).collect()
}

/// Everything that is left for a subscription, each once.
async fn rest_of(store: &PostgresStore, subscription: &str) -> BTreeSet<String> {
    let mut owner = Owner::of(store, subscription).await;
    let notes = owner.read().await;
    owner.leave().await;
    let each = set(notes.clone());
    assert_eq!(each.len(), notes.len(), "{notes:?}");
    each
}

/// A standby is promoted and the relay, which lives through it, goes on there under another identity.
async fn a_promoted_standby_is_gone_on_with(version: Version) {
    let mut primary = Server::start(version, Settings::fast());
    let db = primary.create_database();
    let mut standby = primary.start_standby(Settings::fast());
    let proxy = Proxy::start(primary.address());
    let through = db.through(proxy.address());
    let stage = Stage::in_database(through.clone()).await;
    let mut owner = stage.owner("orders").await;
    let before = stage.store.id();
    emit_all(&db, &["a", "b"]).await;
    assert_eq!(owner.read().await, ["a", "b"]);
    owner.settle().await.unwrap();
    let there = db.through(standby.address());
    let copy = Stage { db: there.clone(), store: stage.store.clone() };
    let settled = "select coalesce(max(last_id), 0) from postrider.position_a";
    until(&copy, settled, 2).await;
    primary.kill_immediate();
    // Waits until it is a primary.
    there.query("select pg_promote()");
    proxy.set_target(standby.address());
    proxy.reset_all();
    emit_all(&there, &["c"]).await;
    assert_eq!(rest_of(&stage.store, "orders").await, set(["c"]), "in the same process, without a restart");
    assert_ne!(stage.store.id(), before, "ids may be issued again, so that they must look different");
    assert!(audited(&copy).starts_with("store_moved from 00000001."), "{}", audited(&copy));
    assert_eq!(open(&through).await.id(), stage.store.id(), "it is done once");
    standby.stop();
}

/// A standby that was behind is promoted: what it never got is gone, and what comes next is delivered
/// although its ids, and xids, were in use before.
async fn events_after_a_late_standbys_promotion_are_delivered(version: Version) {
    let mut primary = Server::start(version, Settings::fast());
    let stage = Stage::in_database(primary.create_database()).await;
    let mut owner = stage.owner("orders").await;
    emit_all(&stage.db, &["a"]).await;
    assert_eq!(owner.read().await, ["a"]);
    owner.leave().await;
    let before = stage.store.id();
    let mut standby = primary.start_standby(Settings::fast());
    standby.kill_immediate();
    let mut owner = Owner::of(&open(&stage.db).await, "orders").await;
    emit_all(&stage.db, &["b", "c"]).await;
    assert_eq!(owner.read().await, ["b", "c"]);
    owner.leave().await;
    primary.kill_immediate();
    standby.start_again();
    let there = stage.db.through(standby.address());
    there.query("select pg_promote()");
    let store = open(&there).await;
    emit_all(&there, &["d", "e"]).await;
    assert_eq!(rest_of(&store, "orders").await, set(["d", "e"]));
    assert_ne!(store.id(), before);
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
}

/// A copy of the files goes on in a timeline of its own, while the server that it was taken from goes on too.
async fn two_that_were_one_can_be_told_apart(version: Version) {
    let mut server = Server::start(version, Settings::fast());
    let stage = Stage::in_database(server.create_database()).await;
    stage.store.subscription_create(NewSubscription::new("orders")).await.unwrap();
    emit_all(&stage.db, &["a"]).await;
    server.stop();
    let settings =
        Settings::fast().copy_of(&server).file("recovery.signal", "").set("restore_command", "false");
    let copy = Server::start(version, settings);
    server.start_again();
    let there = stage.db.through(copy.address());
    until(&Stage { db: there.clone(), store: stage.store.clone() }, "select pg_is_in_recovery()::int", 0)
        .await;
    let (here, elsewhere) = (open(&stage.db).await, open(&there).await);
    assert_ne!(here.id(), elsewhere.id());
    emit_all(&stage.db, &["b"]).await;
    emit_all(&there, &["c"]).await;
    assert_eq!(rest_of(&here, "orders").await, set(["a", "b"]));
    assert_eq!(rest_of(&elsewhere, "orders").await, set(["a", "c"]));
}

/// Copies a database to another server as people do.
fn dump(from: &Server, db: &Database, to: &Server) -> Database {
    let restored = to.create_database();
    let file = from.folder().join("dump.sql");
    let dumped =
        from.command("pg_dump").arg("--dbname").arg(&db.name).stdout(File::create(&file).unwrap()).status();
    assert!(dumped.unwrap().success());
    let told = to
        .command("psql")
        .args(["--quiet", "--set", "ON_ERROR_STOP=1", "--dbname", &restored.name])
        .stdin(File::open(&file).unwrap())
        .stdout(Stdio::null())
        .output()
        .unwrap();
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    restored
}

/// A store with subscriptions that have come differently far, and a transaction that became visible late.
async fn scattered(stage: &Stage) {
    for name in ["done", "half", "never", "late"] {
        stage.store.subscription_create(NewSubscription::new(name)).await.unwrap();
    }
    // More xids than a fresh server has issued.
    run(
        &stage.session().await,
        "do $$ begin for n in 1..3000 loop perform pg_current_xact_id(); commit; end loop; end $$",
    )
    .await;
    let straggler = stage.session().await;
    run(&straggler, "begin").await;
    emit(&straggler, "x", "x").await;
    emit_all(&stage.db, &["a", "b", "c", "d"]).await;
    let mut late = Owner::of(&stage.store, "late").await;
    assert_eq!(late.read().await.len(), 4, "all but the one that is not committed");
    late.leave().await;
    run(&straggler, "commit").await;
    assert_eq!(rest_of(&stage.store, "done").await.len(), 5);
    let mut half = Owner::of(&stage.store, "half").await;
    let some = postrider_core::settle::Room { events: 3, ..crate::stage::AMPLE };
    while half.step(some).await.unwrap().events.is_empty() {}
    assert_eq!(half.at.last_id.0, 3, "it stands in the middle of a window");
    half.leave().await;
    emit_all(&stage.db, &["e"]).await;
}

fn refusal(opened: postrider_core::Result<PostgresStore>) -> String {
    let error = opened.expect_err("nobody has adopted it");
    assert_eq!(error.kind(), ErrorKind::Moved);
    error.to_string()
}

#[tokio::test]
async fn a_restored_dump_is_adopted_and_gone_on_with() {
    let (old, new) = (
        Server::start(Version::V15, Settings::fast()),
        Server::start(Version::V15, Settings::fast().own_identity()),
    );
    let stage = Stage::in_database(old.create_database()).await;
    scattered(&stage).await;
    let db = dump(&old, &stage.db, &new);
    assert!(refusal(PostgresStore::open(options(&db)).await).contains("postrider store adopt"));
    // Nothing can keep a producer from being early.
    emit_all(&db, &["f"]).await;
    let adopted = PostgresStore::adopt(options(&db), "ann").await.unwrap().unwrap();
    assert_eq!((adopted.events, adopted.sequence_to), (7, None));
    assert_ne!(adopted.store_id, stage.store.id());
    assert_eq!(PostgresStore::adopt(options(&db), "ann").await.unwrap(), None, "once is enough");
    let store = open(&db).await;
    assert_eq!((store.id(), store.check().await.unwrap()), (adopted.store_id, Vec::new()));
    let here = Stage { db: db.clone(), store: store.clone() };
    assert_eq!(audited(&here), "store_adopt 7 events, the last id is 7");
    emit_all(&db, &["g"]).await;
    assert_eq!(rest_of(&store, "done").await, set(["e", "f", "g"]));
    assert_eq!(rest_of(&store, "half").await, set(["c", "d", "e", "f", "g"]));
    assert_eq!(rest_of(&store, "late").await, set(["e", "f", "g", "x"]));
    assert_eq!(rest_of(&store, "never").await, set(["a", "b", "c", "d", "e", "f", "g", "x"]));
    store.subscription_create(NewSubscription::new("new")).await.unwrap();
    assert_eq!(rest_of(&store, "new").await.len(), 8, "all of them can be read again from the start");
}

/// Whenever it is cut off: each batch is a transaction of its own, and producers need not wait for the last of them.
#[tokio::test]
async fn an_adoption_that_was_interrupted_is_gone_on_with() {
    let (old, new) = (
        Server::start(Version::V15, Settings::fast()),
        Server::start(Version::V15, Settings::fast().own_identity()),
    );
    let stage = Stage::in_database(old.create_database()).await;
    scattered(&stage).await;
    let db = dump(&old, &stage.db, &new);
    let mut cut_off = 0;
    let adopted = loop {
        let (options, mut steps) = (options(&db), 0);
        let adopting = tokio::spawn(async move {
            let told = |_| {
                steps += 1;
                // It gets a step further each time.
                assert!(steps < 2 + cut_off / 4, "told to end here");
            };
            PostgresStore::adopt_with(options, "ann", 2, told).await
        });
        match adopting.await {
            Ok(adopted) => break adopted.unwrap().unwrap(),
            Err(_) => cut_off += 1,
        }
        if cut_off == 5 {
            emit_all(&db, &["f"]).await;
        }
        assert!(cut_off < 100, "it does not get on");
        refusal(PostgresStore::open(super::stage::options(&db)).await);
    };
    assert!(cut_off > 5, "{cut_off}");
    assert_eq!((adopted.events, adopted.sequence_to), (6, None));
    let store = open(&db).await;
    emit_all(&db, &["g"]).await;
    assert_eq!(rest_of(&store, "done").await, set(["e", "f", "g"]));
    assert_eq!(rest_of(&store, "half").await, set(["c", "d", "e", "f", "g"]));
    assert_eq!(rest_of(&store, "late").await, set(["e", "f", "g", "x"]));
    assert_eq!(rest_of(&store, "never").await, set(["a", "b", "c", "d", "e", "f", "g", "x"]));
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn a_sequence_that_was_not_restored_is_mended() {
    let (old, new) = (
        Server::start(Version::V15, Settings::fast()),
        Server::start(Version::V15, Settings::fast().own_identity()),
    );
    let stage = Stage::in_database(old.create_database()).await;
    scattered(&stage).await;
    // What retention has removed leaves ids free.
    stage.run("delete from postrider.event where id = 1");
    stage.run(
        "insert into postrider.queued
             (subscription_id, event_id, last_id, virtual_time, turn, bytes, events, rank, late, parks, state, key)
         values (1, 5, 5, 0, 700, 1, 1, 0, false, true, 'r', 'k'), (1, 6, 6, 0, 9000, 1, 1, 0, true, true, 'r', 'k')",
    );
    let db = dump(&old, &stage.db, &new);
    // As after logical replication, which leaves sequences alone.
    db.query("alter table postrider.event alter column id restart");
    db.query("alter sequence postrider.queued_n restart");
    emit_all(&db, &["f"]).await;
    let adopted = PostgresStore::adopt(options(&db), "ann").await.unwrap().unwrap();
    assert_eq!(adopted.sequence_to, Some(6));
    let next = db.query("select nextval('postrider.queued_n')")[0][0].clone();
    assert_eq!(next.as_deref(), Some("701"), "turns go on behind those that were fed");
    let store = open(&db).await;
    emit_all(&db, &["g"]).await;
    assert_eq!(rest_of(&store, "done").await, set(["e", "f", "g"]), "its id was low, but it is not lost");
}

#[tokio::test]
async fn a_promoted_standby_is_gone_on_with_on_postgresql_15() {
    a_promoted_standby_is_gone_on_with(Version::V15).await;
}

#[tokio::test]
async fn a_promoted_standby_is_gone_on_with_on_postgresql_18() {
    a_promoted_standby_is_gone_on_with(Version::V18).await;
}

#[tokio::test]
async fn events_after_a_late_standbys_promotion_are_delivered_on_postgresql_15() {
    events_after_a_late_standbys_promotion_are_delivered(Version::V15).await;
}

#[tokio::test]
async fn events_after_a_late_standbys_promotion_are_delivered_on_postgresql_18() {
    events_after_a_late_standbys_promotion_are_delivered(Version::V18).await;
}

#[tokio::test]
async fn two_that_were_one_can_be_told_apart_on_postgresql_15() {
    two_that_were_one_can_be_told_apart(Version::V15).await;
}

#[tokio::test]
async fn two_that_were_one_can_be_told_apart_on_postgresql_18() {
    two_that_were_one_can_be_told_apart(Version::V18).await;
}
