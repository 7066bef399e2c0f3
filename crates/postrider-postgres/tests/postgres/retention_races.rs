//! Retention beside producers, readers and people, each stopped at a named moment.

use std::time::Duration;

use postrider_core::settle::Settle;
use postrider_core::store::Pruned;
use postrider_core::{EventId, NewSubscription, Start, Store};
use postrider_postgres::tokio_postgres::Client;
use postrider_testkit::conformance::owner::{AMPLE, Owner, ids};
use postrider_testkit::postgres::Version;

use crate::scene::Scene;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// A session waits for retention's lock, or for a subscription's.
const ADVISORY_WAIT: &str =
    "select exists (select from pg_locks where not granted and locktype = 'advisory')";

on_each_version!(
    a_producer_elsewhere_is_no_hostage,
    a_producer_in_the_leaf_holds_up_its_emptying_only,
    a_reader_in_the_leaf_reads_to_its_end,
    a_subscription_that_is_created_first_pins,
    a_subscription_that_is_created_last_sees_the_emptied_log,
    a_seek_back_that_is_first_pins,
    a_relay_killed_while_it_empties_a_leaf_has_changed_nothing,
);

/// A store with two old events in leaf 0 that everybody has read, and the owner that did.
async fn old_leaf(version: Version) -> (Scene, Owner<postrider_postgres::PostgresStore>) {
    let scene = Scene::on(version).await;
    let owner = Owner::create(&scene.store, NewSubscription::new("mail")).await.unwrap();
    let old = scene.emit(&["a", "b"]).await;
    owner.settle_rows(old[1], Vec::new()).await.unwrap();
    scene.pass(DAY * 2);
    (scene, owner)
}

/// Keeps others from a table until it commits.
async fn lock(scene: &Scene, table: &str) -> Client {
    let client = scene.client().await;
    client.batch_execute(&format!("begin; lock table postrider.{table} in exclusive mode")).await.unwrap();
    client
}

async fn a_producer_elsewhere_is_no_hostage(version: Version) {
    let (scene, _owner) = old_leaf(version).await;
    scene.rotate();
    let open = scene.open_writer("c").await;
    // Retention stands still with the leaf locked, and producers come and go.
    let kept = lock(&scene, "kept_event").await;
    let store = scene.store.clone();
    let pruning = tokio::spawn(async move { store.prune(DAY).await });
    scene.wait_until("select exists (select from pg_locks where not granted and relation = 'postrider.kept_event'::regclass)").await;
    let other = scene.open_writer("d").await;
    other.commit().await;
    open.commit().await;
    scene.emit(&["e"]).await;
    kept.batch_execute("commit").await.unwrap();
    let pruned = pruning.await.unwrap().unwrap();
    assert_eq!((pruned.removed, pruned.more, scene.events()), (2, true, 3));
}

async fn a_producer_in_the_leaf_holds_up_its_emptying_only(version: Version) {
    let (scene, owner) = old_leaf(version).await;
    let open = scene.open_writer("late").await;
    let pruned = scene.prune(DAY).await;
    assert_eq!((pruned, scene.turn()), (Pruned::default(), 1), "the ring turns, and the leaf is left alone");
    let next = scene.emit(&["c"]).await;
    owner.settle_rows(next[0], Vec::new()).await.unwrap();
    // At the same time: neither waits for the other for long.
    let (pruned, emitted) = tokio::join!(scene.store.prune(DAY), scene.emit(&["d"]));
    let [last] = emitted[..] else { panic!("one event has one id: {emitted:?}") };
    assert_eq!((pruned.unwrap().removed, scene.events()), (0, 4));
    owner.settle_rows(last, Vec::new()).await.unwrap();
    let late = open.commit().await;
    assert_eq!(scene.prune(DAY).await.removed, 0);
    scene.pass(DAY * 2);
    let pruned = scene.prune(DAY).await;
    assert_eq!(
        (pruned.removed, pruned.pinned_by.as_deref()),
        (2, Some("mail")),
        "the next leaf goes before it"
    );
    let chunk = owner.fetch(owner.behind(last).await.unwrap(), AMPLE).await.unwrap();
    assert_eq!(ids(&chunk.events), [late]);
    owner.settle(Settle { mark: Some(chunk.end), ..Settle::default() }).await.unwrap();
    assert_eq!((scene.prune(DAY).await.removed, scene.events()), (3, 0));
}

async fn a_reader_in_the_leaf_reads_to_its_end(version: Version) {
    let (scene, _owner) = old_leaf(version).await;
    let reader = scene.client().await;
    let open = "begin; declare reading cursor for select id from postrider.event_0 order by id";
    reader.batch_execute(open).await.unwrap();
    let first: i64 = reader.query_one("fetch 1 from reading", &[]).await.unwrap().get(0);
    assert_eq!(scene.prune(DAY).await, Pruned::default());
    let second: i64 = reader.query_one("fetch 1 from reading", &[]).await.unwrap().get(0);
    assert_eq!((first, second), (1, 2));
    reader.batch_execute("commit").await.unwrap();
    assert_eq!(scene.prune(DAY).await.removed, 2);
}

async fn a_subscription_that_is_created_first_pins(version: Version) {
    let (scene, _owner) = old_leaf(version).await;
    // It has looked where the log begins, and has not yet written its position.
    let shards = lock(&scene, "shard").await;
    let second = scene.second().await;
    let creating = tokio::spawn(async move {
        second.subscription_create(NewSubscription::new("new").start(Start::Oldest)).await
    });
    scene.wait_until("select exists (select from pg_locks where not granted and relation = 'postrider.shard'::regclass)").await;
    let store = scene.store.clone();
    let pruning = tokio::spawn(async move { store.prune(DAY).await });
    scene.wait_until(ADVISORY_WAIT).await;
    shards.batch_execute("commit").await.unwrap();
    creating.await.unwrap().unwrap();
    let pruned = pruning.await.unwrap().unwrap();
    assert_eq!((pruned.removed, pruned.pinned_by.as_deref()), (0, Some("new")));
    let new = Owner::of(&scene.store, "new").await.unwrap();
    assert_eq!(ids(&new.read_all().await.unwrap()), [EventId(1), EventId(2)]);
}

async fn a_subscription_that_is_created_last_sees_the_emptied_log(version: Version) {
    let (scene, _owner) = old_leaf(version).await;
    // Retention has decided that the leaf goes.
    let kept = lock(&scene, "kept_event").await;
    let store = scene.store.clone();
    let pruning = tokio::spawn(async move { store.prune(DAY).await });
    scene.wait_until("select exists (select from pg_locks where not granted and relation = 'postrider.kept_event'::regclass)").await;
    let second = scene.second().await;
    let creating = tokio::spawn(async move {
        second.subscription_create(NewSubscription::new("new").start(Start::Id(EventId(2)))).await
    });
    scene.wait_until(ADVISORY_WAIT).await;
    kept.batch_execute("commit").await.unwrap();
    assert_eq!(pruning.await.unwrap().unwrap().removed, 2);
    creating.await.unwrap().unwrap();
    let emitted = scene.emit(&["a", "a"]).await;
    let new = Owner::of(&scene.store, "new").await.unwrap();
    assert_eq!(ids(&new.read_all().await.unwrap()), emitted, "all of what is left");
}

async fn a_seek_back_that_is_first_pins(version: Version) {
    let (scene, _owner) = old_leaf(version).await;
    // The position is written and not yet committed.
    let audit = lock(&scene, "audit").await;
    let second = scene.second().await;
    let seeking = tokio::spawn(async move { second.subscription_seek("mail", Start::Oldest, "ann").await });
    scene.wait_until("select exists (select from pg_locks where not granted and relation = 'postrider.audit'::regclass)").await;
    let store = scene.store.clone();
    let pruning = tokio::spawn(async move { store.prune(DAY).await });
    scene.wait_until(ADVISORY_WAIT).await;
    audit.batch_execute("commit").await.unwrap();
    seeking.await.unwrap().unwrap();
    let pruned = pruning.await.unwrap().unwrap();
    assert_eq!((pruned.removed, pruned.pinned_by.as_deref()), (0, Some("mail")));
    let next = Owner::of(&scene.store, "mail").await.unwrap();
    assert_eq!(ids(&next.read_all().await.unwrap()), [EventId(1), EventId(2)]);
}

async fn a_relay_killed_while_it_empties_a_leaf_has_changed_nothing(version: Version) {
    let (scene, _owner) = old_leaf(version).await;
    let kept = lock(&scene, "kept_event").await;
    let store = scene.store.clone();
    let pruning = tokio::spawn(async move { store.prune(DAY).await });
    scene.wait_until("select exists (select from pg_locks where not granted and relation = 'postrider.kept_event'::regclass)").await;
    scene.run(
        "select pg_terminate_backend(pid) from pg_stat_activity
         where application_name = 'postrider/retention' and datname = current_database()",
    );
    assert!(pruning.await.unwrap().is_err());
    kept.batch_execute("commit").await.unwrap();
    assert_eq!(scene.events(), 2);
    let pruned = scene.second().await.prune(DAY).await.unwrap();
    assert_eq!((pruned.removed, scene.events()), (2, 0), "the next round goes on");
}
