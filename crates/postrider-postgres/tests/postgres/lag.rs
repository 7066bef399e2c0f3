//! How far behind a subscription is, whatever the ids do.

use std::time::Duration;

use postrider_core::{DeliveryState, EventId, Start, Store};

use crate::scene::{Row, Scene, TURN};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn lag_is_right_across_a_turn_of_the_ring() {
    let scene = Scene::new().await;
    scene.subscribe("oldest", Start::Oldest).await;
    let first = scene.emit(&["a", "b", "c"]).await;
    let late = scene.open_writer("l").await;
    scene.subscribe("now", Start::Now).await;
    scene.subscribe("id", Start::Id(first[1])).await;
    scene.pass(SECOND * 10);
    scene.rotate();
    assert_eq!(scene.lag("now").await, (0, None));
    let second = scene.emit(&["d", "e"]).await;
    assert_eq!(second[0], EventId(TURN + 1));
    scene.pass(SECOND * 5);
    assert_eq!(scene.lag("oldest").await, (5, Some(SECOND * 15)));
    assert_eq!(scene.lag("id").await, (4, Some(SECOND * 15)));
    assert_eq!(scene.lag("now").await, (2, Some(SECOND * 5)));
    let late = late.commit().await;
    assert_eq!(scene.lag("oldest").await, (6, Some(SECOND * 15)));
    assert_eq!(scene.lag("now").await, (3, Some(SECOND * 15)));
    let ahead = scene.stands("now", second[1]).await.ahead;
    assert_eq!((ahead, scene.stands("now", late).await.ahead), (Some(2), Some(0)));
    assert_eq!(scene.stands("now", first[2]).await.state, DeliveryState::Done);
    scene.store.subscription_seek("now", Start::Now, "ann").await.unwrap();
    assert_eq!(scene.lag("now").await, (0, None));
}

#[tokio::test]
async fn a_long_lag_is_told_by_ids_turn_by_turn() {
    let scene = Scene::new().await;
    let fill =
        "insert into postrider.event (topic, type) select 'order', 'order' from generate_series(1, 70000)";
    scene.subscribe("oldest", Start::Oldest).await;
    scene.run(fill);
    scene.subscribe("now", Start::Now).await;
    scene.rotate();
    for _ in 0..2 {
        scene.run(fill);
    }
    scene.rotate();
    scene.run(fill);
    scene.pass(SECOND);
    assert_eq!(scene.lag("oldest").await, (280_000, Some(SECOND)));
    assert_eq!(scene.lag("now").await, (210_000, Some(SECOND)));
    let last = EventId(2 * TURN + 70_000);
    assert_eq!(scene.stands("oldest", last).await.ahead, Some(279_999));
    assert_eq!(scene.store.stats().await.unwrap().events, 280_000);
}

#[tokio::test]
async fn the_least_advanced_shard_decides() {
    let scene = Scene::new().await;
    scene.subscribe("mail", Start::Oldest).await;
    scene.emit(&["a", "b", "c"]).await;
    scene.store.subscription_seek("mail", Start::Now, "ann").await.unwrap();
    assert_eq!(scene.lag("mail").await.0, 0);
    // Shard 5 stands where all stood at first.
    scene.run(
        "insert into postrider.position_a
         select subscription_id, nextval('postrider.position_n'), 1 << 5, from_snapshot, to_snapshot, next_xid, seq,
             bound_xids, bound_seqs, last_id, at
         from postrider.position_a order by n limit 1",
    );
    assert_eq!(scene.lag("mail").await.0, 3);
    let report = scene.store.subscription_report("mail").await.unwrap();
    let places: Vec<i64> = report.shards.iter().map(|shard| shard.position.last_id.0).collect();
    assert_eq!((places.len(), places[4], places[5], places[6]), (64, 3, 0, 3));
}

#[tokio::test]
async fn a_report_tells_rows_lanes_and_owners() {
    let scene = Scene::new().await;
    scene.subscribe("mail", Start::Oldest).await;
    let ids = scene.emit(&["a", "b", "a", "c", "a"]).await;
    scene.store.subscription_seek("mail", Start::Now, "ann").await.unwrap();
    scene.put("mail", &Row { due_in: Some(SECOND * 9), ..Row::head(ids[0], "a") });
    scene.put("mail", &Row { parks: true, ..Row::dead(ids[1], "b") });
    scene.put("mail", &Row::waiting(ids[2], "a"));
    scene.put("mail", &Row::dead(ids[3], "c"));
    scene.put("mail", &Row::waiting(ids[4], "a"));
    scene.run(
        "insert into postrider.member (name, joined_at, beat_at, steady_since, lease, version)
             values ('gone', postrider.clock(), postrider.clock() - interval '9 s', postrider.clock(), interval '8 s', 1),
                 ('here', postrider.clock(), postrider.clock(), postrider.clock(), interval '8 s', 1);
         update postrider.shard set member_id = (select id from postrider.member where name = 'here') where shard = 7;
         insert into postrider.attempt
             select subscription_id, event_id, n, postrider.clock() + n * interval '1 s', interval '7 ms', 'here', 'no ' || n
             from postrider.delivery, generate_series(1, 3) as n where event_id = 1",
    );
    let stats = scene.store.stats().await.unwrap();
    assert_eq!((stats.events, stats.newest_id, stats.members), (5, Some(ids[4]), vec!["here".to_owned()]));
    assert!(stats.bytes > 0 && stats.location.contains("(PostgreSQL 15."), "{}", stats.location);
    let report = &stats.subscriptions[0];
    assert_eq!((report.pending, report.leased, report.dead, report.parked_count), (3, 0, 2, 2));
    assert_eq!((report.parked[0].head, report.parked[0].waiting), (ids[0], 3));
    assert_eq!((report.parked[1].key.as_str(), report.parked[1].waiting), ("b", 1));
    let here = &report.members[0];
    assert_eq!((here.name.as_str(), here.lives, report.members.len()), ("here", true, 1));
    assert_eq!((report.shards[7].member, report.shards[8].member), (Some(here.id), None));
    let first = scene.stands("mail", ids[0]).await;
    let errors: Vec<&str> = first.history.iter().map(|attempt| attempt.error.as_str()).collect();
    assert_eq!((first.attempts, errors), (3, vec!["no 1", "no 2", "no 3"]));
    assert_eq!(first.history[0].took, Duration::from_millis(7));
    assert_eq!(scene.stands("mail", ids[4]).await.behind, Some(ids[0]));
}
