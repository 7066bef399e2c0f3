//! Places in the log, with transactions open at that moment.

use std::time::Duration;

use postrider_core::{Error, ErrorKind, EventId, NewSubscription, Start, Store};
use postrider_testkit::postgres::Version;

use crate::scene::{MORNING, Scene, TURN};

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn what_commits_later_is_ahead_of_every_place() {
    for version in Version::ALL {
        let scene = Scene::on(version).await;
        let before = scene.emit(&["a"]).await[0];
        scene.pass(MINUTE);
        let late = scene.open_writer("l").await;
        let visible = scene.emit(&["b", "c"]).await;
        let places = [
            ("oldest", Start::Oldest),
            ("now", Start::Now),
            ("id", Start::Id(visible[1])),
            ("time", Start::Time(MORNING.after(MINUTE))),
            ("end", Start::Id(EventId(visible[1].0 + 1))),
            ("future", Start::Time(MORNING.after(MINUTE * 2))),
        ];
        for (name, start) in places {
            scene.subscribe(name, start).await;
        }
        let late = late.commit().await;
        let after = scene.emit(&["d"]).await[0];
        let all = [before, late, visible[0], visible[1], after];
        assert!(before < late && late < visible[0], "the ids were drawn in this order");
        let [b, c] = visible[..] else { panic!("two were emitted") };
        for (name, unread) in [
            ("oldest", &all[..]),
            ("now", &[late, after]),
            ("id", &[late, c, after]),
            ("time", &[late, b, c, after]),
            ("end", &[late, after]),
            ("future", &[late, after]),
        ] {
            assert_eq!(scene.unread(name, &all).await, unread, "{name} on {version:?}");
            assert_eq!(scene.lag(name).await.0, unread.len() as u64, "{name} on {version:?}");
        }
        assert_eq!(scene.check().await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn every_place_is_found_in_a_log_with_gaps_and_turns() {
    let scene = Scene::new().await;
    scene.subscribe("mail", Start::Oldest).await;
    let mut ids = Vec::new();
    for minute in 0..40 {
        if minute == 20 || minute == 30 {
            scene.rotate();
        }
        ids.extend(scene.emit(&["a", "b"]).await);
        scene.pass(MINUTE);
    }
    assert_eq!((ids[39], ids[40].0, ids[60].0), (EventId(40), TURN + 1, 2 * TURN + 1));
    scene.run("delete from postrider.event where id <= 10 or id % 7 = 0 or id between 20 and 30");
    let minute = |n: u32| Start::Time(MORNING.after(MINUTE * n));
    for (to, position) in [
        (Start::Oldest, 0),
        (Start::Now, 2 * TURN + 20),
        (Start::Id(EventId(0)), 0),
        (Start::Id(EventId(17)), 16),
        (Start::Id(EventId(TURN + 1)), TURN),
        (minute(0), 10),
        (minute(7), 14),    // events 15 and 16
        (minute(12), 30),   // 25 and 26 are gone, and so is all up to 30
        (minute(20), TURN), // the first events of the second turn
        (minute(39), 2 * TURN + 18),
        (minute(40), 2 * TURN + 20),
    ] {
        let found = scene.store.subscription_seek("mail", to, "ann").await.unwrap();
        let next = |after: i64| {
            scene.number(&format!("select coalesce(min(id), 0) from postrider.event where id > {after}"))
        };
        assert_eq!(next(found.last_id.0), next(position), "{to:?} gave {found}");
        assert_eq!(
            (found.window, scene.lag("mail").await.0),
            (0, scene.number(&format!("select count(*) from postrider.event where id > {position}")) as u64),
            "{to:?}"
        );
    }
    let beyond = Start::Id(EventId(2 * TURN + 22));
    let refused = scene.store.subscription_seek("mail", beyond, "ann").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "events up to there would be skipped when they come");
}

#[tokio::test]
async fn a_stored_snapshot_is_older_than_the_transaction_that_stores_it() {
    let scene = Scene::new().await;
    scene.emit(&["a", "b"]).await;
    for (name, start) in [("now", Start::Now), ("id", Start::Id(EventId(2)))] {
        scene.subscribe(name, start).await;
        scene.store.subscription_seek(name, start, "ann").await.unwrap();
    }
    // Otherwise xids that are issued again after a crash would look as if they had been seen.
    let young = "select count(*) from postrider.position_a where xmin::text::bigint < next_xid::text::bigint";
    assert_eq!(scene.number(young), 0);
    assert_eq!(scene.number("select count(*) from postrider.position_a"), 4);
}

#[tokio::test]
async fn a_new_position_takes_over_what_others_know_about_late_transactions() {
    let scene = Scene::new().await;
    scene.emit(&["a"; 10]).await;
    scene.subscribe("first", Start::Now).await;
    let late = scene.open_writer("l").await;
    scene.emit(&["a"; 10]).await;
    scene.subscribe("second", Start::Now).await;
    let bounds = "select bound_seqs from postrider.position_a order by n desc limit 1";
    assert_eq!(
        scene.text(bounds),
        "{10,21}",
        "the late rows are looked for above 10, not from the beginning"
    );
    late.commit().await;
    assert_eq!((scene.lag("first").await.0, scene.lag("second").await.0), (11, 1));
}

#[tokio::test]
async fn a_name_is_taken_once_even_by_two_at_once() {
    let scene = Scene::new().await;
    let other = scene.second().await;
    let new = || NewSubscription::new("mail");
    let (one, two) = tokio::join!(scene.store.subscription_create(new()), other.subscription_create(new()));
    let refused: Vec<ErrorKind> =
        [one, two].iter().filter_map(|end| end.as_ref().err()).map(Error::kind).collect();
    assert_eq!(refused, [ErrorKind::Conflict]);
    assert_eq!(scene.number("select count(*) from postrider.shard"), 64);
}
