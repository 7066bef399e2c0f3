//! Places in the log.

use std::time::Duration;

use postrider_core::settle::{Lane, Row, RowDue, Settle};
use postrider_core::{ErrorKind, EventId, Key, LogStore, NewSubscription, Position, Start, Store};

use crate::scene::{MORNING, ROOM, Scene, at, parking, runs};

const NOW: RowDue = RowDue::After(Duration::ZERO);

#[tokio::test]
async fn every_place_is_found_in_a_log_with_gaps() {
    let scene = Scene::new().await;
    scene.subscribe("mail").await;
    for _ in 0..50 {
        scene.emit(&["a", "b"]).await;
        scene.clock.pass(Duration::from_secs(60));
    }
    scene
        .raw()
        .execute("delete from postrider_event where id <= 10 or id % 7 = 0 or id between 40 and 60", [])
        .unwrap();
    let minute = |n: u64| Start::Time(MORNING.after(Duration::from_secs(60 * n)));
    for (to, position) in [
        (Start::Oldest, 10),
        (Start::Now, 100),
        (Start::Id(EventId(0)), 0),
        (Start::Id(EventId(17)), 16),
        (Start::Id(EventId(101)), 100),
        (minute(0), 10),
        (minute(10), 21), // events 21 and 22; 21 is gone
        (minute(25), 60), // 51 and 52 are gone, and so is all up to 60
        (minute(49), 98), // 99 and 100
        (minute(50), 100),
    ] {
        let found = scene.store.subscription_seek("mail", to, "ann").await.unwrap();
        let next = |after: i64| {
            scene.number(&format!("select coalesce(min(id), 0) from postrider_event where id > {after}"))
        };
        assert_eq!(next(found.last_id.0), next(position), "{to:?} gave {found}");
    }
    let beyond = scene.store.subscription_seek("mail", Start::Id(EventId(102)), "ann").await.unwrap_err();
    assert_eq!(beyond.kind(), ErrorKind::Invalid, "events up to there would be skipped when they come");
}

#[tokio::test]
async fn a_seek_fences_the_owner_and_takes_only_the_rows_above() {
    let scene = Scene::new().await;
    scene.subscribe("mail").await;
    let ids = scene.emit(&["a", "b", "a", "b"]).await;
    let hold = scene.take("mail").await;
    // The head of the late lane lies above the new position, and what waits behind it below.
    let late = |id: EventId, turn, due| Row {
        turn,
        lane: Some(Lane { key: Key::new("a"), late: true }),
        ..parking(id, "a", due)
    };
    let rows = vec![late(ids[2], 1, NOW), late(ids[0], 2, RowDue::Waiting), parking(ids[3], "b", NOW)];
    scene.settle(&hold, Settle { mark: Some(at(ids[3])), rows, ..Settle::default() }).await;
    let to = scene.store.subscription_seek("mail", Start::Id(ids[1]), "ann").await.unwrap();
    assert_eq!(to, at(ids[0]));
    assert_eq!(scene.store.check().await.unwrap(), Vec::<String>::new());
    assert!(scene.store.fetch(&hold, to, ROOM).await.unwrap_err().is_fenced());
    let hold = scene.take("mail").await;
    assert_eq!(hold.shards[0].position, to);
    assert_eq!(runs(&scene.due(&hold, &[]).await), [[ids[0].0]]);
    assert_eq!(scene.store.fetch(&hold, to, ROOM).await.unwrap().events.len(), 3);
}

#[tokio::test]
async fn a_deleted_subscription_fences_its_owner_and_leaves_nothing_but_the_audit() {
    let scene = Scene::new().await;
    scene.subscribe("mail").await;
    let ids = scene.emit(&["a"]).await;
    let hold = scene.take("mail").await;
    let rows = vec![parking(ids[0], "a", NOW)];
    scene.settle(&hold, Settle { mark: Some(at(ids[0])), rows, ..Settle::default() }).await;
    scene.store.subscription_delete("mail", "ann").await.unwrap();
    for table in ["subscription", "shard", "delivery", "attempt"] {
        assert_eq!(scene.number(&format!("select count(*) from postrider_{table}")), 0, "{table}");
    }
    scene.subscribe("mail").await;
    assert!(scene.store.fetch(&hold, Position::START, ROOM).await.unwrap_err().is_fenced());
    assert_eq!(scene.number("select count(*) from postrider_audit where actor = 'ann'"), 1);
    let twice = scene.store.subscription_create(NewSubscription::new("mail")).await.unwrap_err();
    assert_eq!(twice.kind(), ErrorKind::Conflict);
}
