//! Which exceptions are due.

use std::collections::HashSet;
use std::time::Duration;

use postrider_core::settle::{Lane, Room, Row, RowDue, Settle};
use postrider_core::{EventId, Key, LogStore, limits};

use crate::scene::{ROOM, Scene, at, dead, lane, parking, runs, single};

const NOW: RowDue = RowDue::After(Duration::ZERO);

fn later(seconds: u64) -> RowDue {
    RowDue::After(Duration::from_secs(seconds))
}

#[tokio::test]
async fn neither_loaded_rows_nor_dead_ones_hide_what_is_due() {
    let scene = Scene::new().await;
    scene.subscribe("mail").await;
    let count = limits::DUE_LOADED_MAX * 2 + 1;
    let keys: Vec<String> = (0..count).map(|n| n.to_string()).collect();
    let ids = scene.emit(&keys.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let hold = scene.take("mail").await;
    let rows = ids
        .iter()
        .enumerate()
        .map(|(n, id)| if n < limits::DUE_LOADED_MAX { dead(single(*id, NOW)) } else { single(*id, NOW) });
    let rows = rows.collect();
    scene.settle(&hold, Settle { mark: ids.last().map(|id| at(*id)), rows, ..Settle::default() }).await;
    let loaded = &ids[limits::DUE_LOADED_MAX..count - 1];
    let room = Room { events: 1, bytes: 1 };
    let due = scene.store.fetch_due(&hold, loaded.iter().copied().collect(), room).await.unwrap();
    assert_eq!(runs(&due), [[ids[count - 1].0]]);
    assert_eq!(due.next_in, None);
}

#[tokio::test]
async fn rows_come_due_in_their_order_and_the_next_one_is_announced() {
    let scene = Scene::new().await;
    scene.subscribe("mail").await;
    let ids = scene.emit(&["a", "b", "c"]).await;
    let hold = scene.take("mail").await;
    let rows = vec![single(ids[0], later(20)), single(ids[1], later(10)), single(ids[2], later(30))];
    scene.settle(&hold, Settle { mark: Some(at(ids[2])), rows, ..Settle::default() }).await;
    let due = scene.due(&hold, &[]).await;
    assert_eq!((runs(&due).len(), due.next_in), (0, Some(Duration::from_secs(10))));
    scene.clock.pass(Duration::from_secs(25));
    let due = scene.due(&hold, &[]).await;
    assert_eq!(runs(&due), [[ids[1].0], [ids[0].0]]);
    assert_eq!(due.next_in, Some(Duration::from_secs(5)));
    let one = Room { events: 1, ..ROOM };
    let due = scene.store.fetch_due(&hold, HashSet::new(), one).await.unwrap();
    assert_eq!(runs(&due), [[ids[1].0]]);
    assert_eq!(due.next_in, Some(Duration::ZERO), "what is left over is due already");
}

#[tokio::test]
async fn a_run_brings_what_waits_but_passes_nothing_in_memory() {
    let scene = Scene::new().await;
    scene.subscribe("mail").await;
    let ids = scene.emit(&vec!["a"; limits::RUN_EVENTS_MAX + 10]).await;
    let hold = scene.take("mail").await;
    let mut rows: Vec<Row> = ids.iter().map(|id| parking(*id, "a", RowDue::Waiting)).collect();
    rows[0].due = NOW;
    scene.settle(&hold, Settle { mark: ids.last().map(|id| at(*id)), rows, ..Settle::default() }).await;
    let due = scene.due(&hold, &[]).await;
    assert_eq!(due.runs[0].rows.len(), limits::RUN_EVENTS_MAX);
    assert_eq!((due.runs[0].parks, due.runs[0].lane.clone()), (true, Some(lane("a"))));
    let due = scene.due(&hold, &[ids[3]]).await;
    assert_eq!(runs(&due), [ids[..3].iter().map(|id| id.0).collect::<Vec<_>>()]);
    assert!(scene.due(&hold, &[ids[0]]).await.runs.is_empty());
}

#[tokio::test]
async fn delayed_events_of_a_key_wait_in_the_order_of_their_due_times() {
    let scene = Scene::new().await;
    scene.subscribe("mail").await;
    let ids = scene.emit(&["a", "a", "a"]).await;
    let hold = scene.take("mail").await;
    let late = |id: EventId, turn, due| Row {
        turn,
        lane: Some(Lane { key: Key::new("a"), late: true }),
        ..parking(id, "a", due)
    };
    let rows =
        vec![late(ids[2], 100, NOW), late(ids[0], 300, RowDue::Waiting), late(ids[1], 200, RowDue::Waiting)];
    scene.settle(&hold, Settle { mark: Some(at(ids[2])), rows, ..Settle::default() }).await;
    assert_eq!(runs(&scene.due(&hold, &[]).await), [[ids[2].0, ids[1].0, ids[0].0]]);
}

#[tokio::test]
async fn a_paused_subscription_has_nothing_due() {
    use postrider_core::Store;
    let scene = Scene::new().await;
    scene.subscribe("mail").await;
    let ids = scene.emit(&["a"]).await;
    let hold = scene.take("mail").await;
    let rows = vec![single(ids[0], NOW)];
    scene.settle(&hold, Settle { mark: Some(at(ids[0])), rows, ..Settle::default() }).await;
    scene.store.subscription_pause("mail").await.unwrap();
    assert!(scene.due(&hold, &[]).await.runs.is_empty());
    scene.store.subscription_resume("mail").await.unwrap();
    assert_eq!(scene.due(&hold, &[]).await.runs.len(), 1);
}
