//! The two tables of positions: whichever is written, the newest position of each shard is found.

use std::time::Duration;

use postrider_core::{NewSubscription, Start, Store};
use postrider_testkit::conformance::owner::Owner;
use postrider_testkit::postgres::Version;

use crate::scene::Scene;

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 3600);

on_each_version!(
    a_swap_keeps_the_newest_position_of_each_shard,
    a_settle_that_missed_the_switch_counts,
    a_table_in_use_is_left_for_later,
    many_rows_are_swapped_before_their_time,
    settles_go_on_beside_swaps,
);

/// Where each shard of each subscription stands.
async fn places(scene: &Scene) -> Vec<(String, Vec<i64>)> {
    let reports = scene.store.subscription_list().await.unwrap();
    let place = |report: &postrider_core::store::SubscriptionReport| {
        let ids = report.shards.iter().map(|shard| shard.position.last_id.0).collect();
        (report.subscription.name.clone(), ids)
    };
    reports.iter().map(place).collect()
}

/// Lets some shards of a subscription stand at an id, as an owner of these would.
fn put(scene: &Scene, table: char, subscription: &str, shards: u64, last_id: i64) {
    scene.run(&format!(
        "insert into postrider.position_{table}
         select subscription.id, nextval('postrider.position_n'), {}, null, '5:5:', '5', {last_id}, '{{}}', '{{}}', {last_id},
             postrider.clock()
         from postrider.subscription where name = '{subscription}'",
        shards as i64
    ));
}

fn table(scene: &Scene) -> String {
    scene.text("select current from postrider.position_table")
}

fn rows(scene: &Scene, table: char) -> i64 {
    scene.number(&format!("select count(*) from postrider.position_{table}"))
}

async fn a_swap_keeps_the_newest_position_of_each_shard(version: Version) {
    let scene = Scene::on(version).await;
    for name in ["one", "two", "three", "gone"] {
        scene.subscribe(name, Start::Oldest).await;
    }
    put(&scene, 'a', "one", 0xff, 3);
    put(&scene, 'a', "one", 0x0f, 4);
    put(&scene, 'a', "one", 0xf0, 5);
    put(&scene, 'a', "two", u64::MAX, 6);
    put(&scene, 'a', "three", 1 << 63, 7);
    put(&scene, 'a', "three", u64::MAX << 1, 8);
    scene.store.subscription_delete("gone", "ann").await.unwrap();
    let before = places(&scene).await;
    assert_eq!(before[0].1[..10], [4, 4, 4, 4, 5, 5, 5, 5, 0, 0]);
    scene.prune(DAY).await;
    assert_eq!((table(&scene), rows(&scene, 'b')), ("a".to_owned(), 0), "it is not time yet");
    for (now, then) in [('b', 'a'), ('a', 'b'), ('b', 'a')] {
        scene.pass(MINUTE * 6);
        scene.prune(DAY).await;
        assert_eq!(places(&scene).await, before);
        assert_eq!(table(&scene), now.to_string());
        // Of `one` three, of `two` one, of `three` its first for shard 0 and the newest.
        assert_eq!((rows(&scene, now), rows(&scene, then)), (6, 0));
    }
}

async fn a_settle_that_missed_the_switch_counts(version: Version) {
    let scene = Scene::on(version).await;
    scene.subscribe("mail", Start::Oldest).await;
    scene.pass(MINUTE * 6);
    scene.prune(DAY).await;
    assert_eq!((table(&scene).as_str(), rows(&scene, 'a')), ("b", 0));
    // It had read that `a` is written.
    put(&scene, 'a', "mail", 0xff, 9);
    let before = places(&scene).await;
    assert_eq!(before[0].1[..9], [9, 9, 9, 9, 9, 9, 9, 9, 0]);
    scene.prune(DAY).await;
    assert_eq!((places(&scene).await, rows(&scene, 'a'), rows(&scene, 'b')), (before, 0, 2));
}

async fn a_table_in_use_is_left_for_later(version: Version) {
    let scene = Scene::on(version).await;
    scene.subscribe("mail", Start::Oldest).await;
    put(&scene, 'a', "mail", 0xff, 9);
    let before = places(&scene).await;
    let reader = scene.client().await;
    reader.batch_execute("begin; select from postrider.position_a").await.unwrap();
    scene.pass(MINUTE * 6);
    scene.prune(DAY).await;
    assert_eq!((table(&scene).as_str(), rows(&scene, 'a')), ("b", 2), "switched and not emptied");
    assert_eq!(places(&scene).await, before);
    put(&scene, 'b', "mail", 0x0f, 10);
    let before = places(&scene).await;
    reader.batch_execute("commit").await.unwrap();
    scene.prune(DAY).await;
    assert_eq!((places(&scene).await, rows(&scene, 'a'), rows(&scene, 'b')), (before, 0, 3));
}

async fn many_rows_are_swapped_before_their_time(version: Version) {
    let scene = Scene::on(version).await;
    scene.subscribe("mail", Start::Oldest).await;
    scene.run(
        "insert into postrider.position_a
         select subscription_id, nextval('postrider.position_n'), shards, from_snapshot, to_snapshot, next_xid, seq,
             bound_xids, bound_seqs, g, at
         from postrider.position_a, generate_series(1, 10000) as g",
    );
    let before = places(&scene).await;
    scene.prune(DAY).await;
    assert_eq!((places(&scene).await, rows(&scene, 'a'), rows(&scene, 'b')), (before, 0, 1));
}

async fn settles_go_on_beside_swaps(version: Version) {
    let scene = Scene::on(version).await;
    let one = Owner::create(&scene.store, NewSubscription::new("one")).await.unwrap();
    let second = scene.second().await;
    let two = Owner::create(&second, NewSubscription::new("two")).await.unwrap();
    let swaps = async {
        let pruner = scene.second().await;
        for _ in 0..30 {
            scene.pass(MINUTE * 6);
            pruner.prune(DAY * 14).await.unwrap();
        }
    };
    let settles = async {
        let mut last = 0;
        for _ in 0..60 {
            let id = scene.emit(&["a"]).await[0];
            one.settle_rows(id, Vec::new()).await.unwrap();
            two.settle_rows(id, Vec::new()).await.unwrap();
            for (_, found) in places(&scene).await {
                assert!(found.iter().all(|place| *place >= id.0), "a position went back: {found:?}");
            }
            last = id.0;
        }
        last
    };
    let ((), last) = tokio::join!(swaps, settles);
    scene.pass(MINUTE * 6);
    scene.prune(DAY * 14).await;
    assert!(places(&scene).await.iter().all(|(_, found)| found.iter().all(|place| *place >= last)));
    assert_eq!(rows(&scene, 'a') + rows(&scene, 'b'), 2);
    assert_eq!(scene.check().await, Vec::<String>::new());
}
