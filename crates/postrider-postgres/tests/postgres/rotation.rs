//! When the ring turns, and when it does not.

use std::time::Duration;

use postrider_core::{Event, EventId, NewSubscription, Store};
use postrider_testkit::conformance::owner::{Owner, ids};
use postrider_testkit::postgres::Version;

use crate::scene::{Scene, TURN};

const DAY: Duration = Duration::from_secs(24 * 3600);

on_each_version!(
    an_empty_leaf_is_never_turned,
    a_leaf_is_turned_when_it_is_old,
    two_relays_turn_the_ring_once,
    a_key_keeps_its_order_across_turns,
    a_week_without_a_relay_fills_one_leaf,
    a_full_ring_is_not_turned_and_producers_go_on,
);

async fn an_empty_leaf_is_never_turned(version: Version) {
    let scene = Scene::on(version).await;
    for _ in 0..3 {
        scene.pass(DAY);
        assert_eq!(scene.prune(Duration::ZERO).await.removed, 0);
    }
    assert_eq!(scene.emit(&["a"]).await, [EventId(1)]);
    scene.pass(DAY);
    assert_eq!(scene.prune(Duration::ZERO).await.removed, 1);
    for _ in 0..3 {
        scene.pass(DAY);
        scene.prune(Duration::ZERO).await;
    }
    assert_eq!(scene.emit(&["a"]).await, [EventId(TURN + 1)]);
}

async fn a_leaf_is_turned_when_it_is_old(version: Version) {
    let scene = Scene::on(version).await;
    scene.emit(&["a"]).await;
    scene.pass(DAY / 2);
    scene.prune(DAY * 14).await;
    assert_eq!(scene.turn(), 0, "it is half a day old");
    scene.pass(DAY / 2);
    scene.prune(DAY * 14).await;
    assert_eq!(scene.turn(), 1);
    assert_eq!(scene.text("select turn || ' ' || last_id from postrider.turn"), "0 1");
    scene.prune(DAY * 14).await;
    assert_eq!((scene.turn(), scene.events()), (1, 1), "the leaf that it has come to is empty");
    assert_eq!(scene.check().await, Vec::<String>::new());
}

async fn two_relays_turn_the_ring_once(version: Version) {
    let scene = Scene::on(version).await;
    let second = scene.second().await;
    for turn in 0..20 {
        scene.emit(&["a"]).await;
        scene.pass(DAY);
        let (one, other) = tokio::join!(scene.store.prune(DAY / 2), second.prune(DAY / 2));
        assert_eq!(one.unwrap().removed + other.unwrap().removed, 1);
        assert_eq!(scene.turn(), turn + 1);
    }
    assert_eq!(scene.number("select count(*) from postrider.turn"), 20);
}

async fn a_key_keeps_its_order_across_turns(version: Version) {
    let scene = Scene::on(version).await;
    let owner = Owner::create(&scene.store, NewSubscription::new("mail")).await.unwrap();
    let mut emitted = Vec::new();
    for _ in 0..20 {
        emitted.extend(scene.emit(&["a", "a"]).await);
        if emitted.len() % 6 == 0 {
            owner.settle_rows(*emitted.last().unwrap(), Vec::new()).await.unwrap();
        }
        scene.pass(DAY);
        scene.prune(DAY * 14).await;
        let (lag, unread) = (scene.lag("mail").await.0, emitted.len() as u64 % 6);
        assert_eq!(lag, unread, "lag is counted across turns");
    }
    assert!(scene.turn() > 15, "{}", scene.turn());
    let late = Owner::create(&scene.store, NewSubscription::new("late")).await.unwrap();
    let read = ids(&late.read_all().await.unwrap());
    assert!(read.is_sorted() && emitted.ends_with(&read), "{read:?}");
    assert_eq!(scene.lag("late").await.0, read.len() as u64);
}

async fn a_week_without_a_relay_fills_one_leaf(version: Version) {
    let scene = Scene::on(version).await;
    let owner = Owner::create(&scene.store, NewSubscription::new("mail")).await.unwrap();
    for _ in 0..7 {
        for _ in 0..10 {
            scene.store.event_emit(vec![Event::new("order").key("a"); 100]).await.unwrap();
        }
        scene.pass(DAY);
    }
    assert_eq!(scene.number("select count(*) from postrider.event_0"), 7_000);
    assert_eq!(scene.prune(DAY).await.pinned_by.as_deref(), Some("mail"));
    let read = ids(&owner.read_all().await.unwrap());
    assert_eq!((read.len(), read.is_sorted()), (7_000, true));
    owner.settle_rows(read[6_999], Vec::new()).await.unwrap();
    assert_eq!(scene.prune(DAY / 2).await.removed, 7_000);
    assert_eq!(scene.events(), 0);
}

async fn a_full_ring_is_not_turned_and_producers_go_on(version: Version) {
    let scene = Scene::on(version).await;
    let owner = Owner::create(&scene.store, NewSubscription::new("mail")).await.unwrap();
    scene.store.subscription_pause("mail").await.unwrap();
    let mut emitted = Vec::new();
    for _ in 0..30 {
        emitted.extend(scene.emit(&["a"]).await);
        scene.pass(DAY);
        scene.prune(DAY * 14).await;
    }
    assert_eq!((scene.turn(), scene.events()), (15, 30), "the leaf after the last one is the first one");
    assert_eq!(scene.number("select count(*) from postrider.event_15"), 15);
    assert_eq!(scene.prune(DAY * 14).await.pinned_by.as_deref(), Some("mail"));
    scene.store.subscription_resume("mail").await.unwrap();
    let owner = Owner::holding(&scene.store, owner.member, owner.taken);
    assert_eq!(ids(&owner.read_all().await.unwrap()), emitted);
    owner.settle_rows(emitted[29], Vec::new()).await.unwrap();
    scene.pass(DAY * 20);
    assert_eq!(scene.prune(DAY * 14).await.removed, 30);
    assert_eq!((scene.turn(), scene.events()), (16, 0));
}
