//! What may go, and what must stay.

use std::time::Duration;

use postrider_core::settle::{RowDue, Settle};
use postrider_core::{EventId, Store, limits};

use crate::scene::{Scene, at, single};

const DAY: Duration = Duration::from_secs(24 * 3600);

async fn many(scene: &Scene, count: usize) -> Vec<EventId> {
    scene.emit(&vec!["a"; count]).await
}

#[tokio::test]
async fn only_old_events_that_are_not_needed_are_removed() {
    let scene = Scene::new().await;
    scene.subscribe("fast").await;
    scene.subscribe("slow").await;
    let old = many(&scene, 10).await;
    scene.clock.pass(DAY * 2);
    let young = many(&scene, 5).await;
    let (fast, slow) = (scene.take("fast").await, scene.take("slow").await);
    let rows = vec![single(old[1], RowDue::After(DAY * 30))];
    scene.settle(&fast, Settle { mark: Some(at(young[4])), rows, ..Settle::default() }).await;
    scene.settle(&slow, Settle { mark: Some(at(old[6])), ..Settle::default() }).await;
    scene.store.subscription_pause("slow").await.unwrap();

    let pruned = scene.store.prune(DAY).await.unwrap();
    assert_eq!((pruned.removed, pruned.more), (6, false));
    assert_eq!(pruned.pinned_by.as_deref(), Some("slow"), "a paused subscription keeps what it has not read");
    assert!(scene.store.event_get(old[1]).await.unwrap().is_some(), "a delayed event is kept");

    scene.settle(&slow, Settle { mark: Some(at(young[4])), ..Settle::default() }).await;
    scene.settle(&fast, Settle { done: vec![old[1]], ..Settle::default() }).await;
    let pruned = scene.store.prune(DAY).await.unwrap();
    assert_eq!((pruned.removed, pruned.pinned_by), (4, None));
    assert_eq!(scene.number("select count(*) from postrider_event"), 5);
}

#[tokio::test]
async fn bites_are_small_and_events_kept_at_the_front_do_not_stop_them() {
    let scene = Scene::new().await;
    scene.subscribe("mail").await;
    let kept = 6_000;
    let ids = many(&scene, kept + 2 * limits::PRUNE_ROWS_MAX + 1).await;
    let hold = scene.take("mail").await;
    let rows = ids[..kept].iter().map(|id| single(*id, RowDue::After(DAY * 30))).collect();
    scene.settle(&hold, Settle { mark: ids.last().map(|id| at(*id)), rows, ..Settle::default() }).await;
    scene.clock.pass(DAY * 2);
    let mut removed = Vec::new();
    loop {
        let pruned = scene.store.prune(DAY).await.unwrap();
        removed.push(pruned.removed as usize);
        if !pruned.more {
            break;
        }
    }
    assert!(removed.iter().all(|removed| *removed <= limits::PRUNE_ROWS_MAX), "{removed:?}");
    assert_eq!(removed.iter().sum::<usize>(), 2 * limits::PRUNE_ROWS_MAX + 1);
    assert!(removed.len() <= 5, "a round walks over what is kept once: {removed:?}");
    // What was kept goes in a later round, once nothing refers to it.
    scene.settle(&hold, Settle { done: vec![ids[0]], ..Settle::default() }).await;
    assert_eq!(scene.store.prune(DAY).await.unwrap().removed, 1);
}

#[tokio::test]
async fn without_subscriptions_age_alone_decides() {
    let scene = Scene::new().await;
    many(&scene, 3).await;
    assert_eq!(scene.store.prune(DAY).await.unwrap().removed, 0);
    scene.clock.pass(DAY * 2);
    let young = many(&scene, 2).await;
    let pruned = scene.store.prune(DAY).await.unwrap();
    assert_eq!((pruned.removed, pruned.more, pruned.pinned_by), (3, false, None));
    assert_eq!(scene.number("select min(id) from postrider_event"), young[0].0);
    assert_eq!(scene.store.prune(DAY).await.unwrap().removed, 0);
}
