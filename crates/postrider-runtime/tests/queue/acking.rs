//! Handlers that ack in transactions of their own.

use postrider_core::queue::Ticket;
use postrider_core::{Delivery, EventId, Failure, Result, Store};
use postrider_testkit::{MemoryStore, MemoryTx, MemoryWork};

use crate::scene::{LEASE, SECOND, Scene, at_once, one_by_one, pass, range, subscription, unordered};

/// A transaction that writes a note and acks; whether it commits is told.
fn transaction(store: &MemoryStore, delivery: &Delivery, commits: bool) -> Result<()> {
    let id = delivery.id;
    let work: MemoryWork = Box::new(move |tx: &mut MemoryTx| {
        tx.note(id, "paid");
        if commits { Ok(()) } else { Err(Failure::retry("rolled back")) }
    });
    store.ack_with(delivery, work).map(drop)
}

fn failed(error: &postrider_core::Error) -> Failure {
    Failure::retry(error.to_string())
}

fn effects(scene: &Scene) -> Vec<i64> {
    let mut ids: Vec<i64> = scene.store.effects().iter().map(|(id, _)| id.0).collect();
    ids.sort_unstable();
    ids
}

#[tokio::test(start_paused = true)]
async fn what_handlers_ack_themselves_is_delivered_once_in_the_order_of_its_key() {
    for queue in [subscription(), one_by_one(), unordered()] {
        let scene = Scene::new(&["a", "b", "a", "", "", "a", "b", ""]).await;
        let store = scene.store.clone();
        let acks =
            at_once(move |delivery| transaction(&store, delivery, true).map_err(|error| failed(&error)));
        let summary = scene.until_idle(scene.worker(queue, acks)).await;
        assert_eq!((summary.delivered, summary.failed), (8, 0));
        assert_eq!((scene.sorted(), effects(&scene)), (range(8), range(8)));
        let of_a: Vec<i64> = scene.ids().into_iter().filter(|id| [1, 3, 6].contains(id)).collect();
        assert_eq!((of_a, scene.left().await), (vec![1, 3, 6], (0, 0, 0, 0)));
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_of_a_key_does_not_end_the_handler_that_has_acked_and_goes_on() {
    let scene = Scene::new(&["a", "a", "a"]).await;
    let store = scene.store.clone();
    let acks = move |delivery: Delivery| {
        let acked = transaction(&store, &delivery, true).map_err(|error| failed(&error));
        async move {
            pass(SECOND * 3).await;
            acked
        }
    };
    let summary = scene.until_idle(scene.worker(subscription(), acks)).await;
    assert_eq!((summary.delivered, scene.ids(), effects(&scene)), (3, range(3), range(3)));
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_fails_after_its_ack_was_rolled_back_is_called_again() {
    let scene = Scene::new(&["a", "a", "", ""]).await;
    let store = scene.store.clone();
    let acks = at_once(move |delivery: &Delivery| {
        let commits = delivery.attempt > 1;
        transaction(&store, delivery, commits).map_err(|error| failed(&error))?;
        if commits { Ok(()) } else { Err(Failure::retry("the commit failed")) }
    });
    let summary = scene.run_for(scene.worker(subscription(), acks), SECOND * 10).await;
    assert_eq!((summary.delivered, summary.failed, effects(&scene)), (4, 4, range(4)));
    assert_eq!(scene.left().await, (0, 0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_says_it_has_acked_but_did_not_commit_is_called_again() {
    for queue in [one_by_one(), unordered()] {
        let scene = Scene::new(&["", "", ""]).await;
        let store = scene.store.clone();
        let tried = std::sync::Mutex::new(std::collections::HashSet::new());
        let acks = at_once(move |delivery: &Delivery| {
            let commits = !tried.lock().unwrap().insert(delivery.id) || delivery.id == EventId(2);
            transaction(&store, delivery, commits).map_err(|error| failed(&error))
        });
        let summary = scene.run_for(scene.worker(queue, acks), SECOND * 5).await;
        assert_eq!((summary.failed, effects(&scene)), (0, range(3)));
        assert_eq!((scene.sorted(), scene.left().await), (vec![1, 1, 2, 3, 3], (0, 0, 0, 0)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_ends_between_its_commit_and_its_outcome_delivers_nothing_twice() {
    let scene = Scene::new(&["a", "a"]).await;
    let store = scene.store.clone();
    let stuck = move |delivery: Delivery| {
        transaction(&store, &delivery, true).unwrap();
        std::future::pending()
    };
    let running = scene.start(scene.worker(subscription().concurrency(1), stuck));
    pass(SECOND).await;
    running.crash().await;
    pass(LEASE * 2).await;
    let store = scene.store.clone();
    let acks = at_once(move |delivery| transaction(&store, delivery, true).map_err(|error| failed(&error)));
    scene.until_idle(scene.worker(subscription(), acks)).await;
    assert_eq!((scene.ids(), effects(&scene)), (range(2), range(2)));
}

#[tokio::test(start_paused = true)]
async fn results_are_kept_of_what_handlers_ack_themselves() {
    let scene = Scene::new(&["", ""]).await;
    let store = scene.store.clone();
    let acks = at_once(move |delivery: &Delivery| {
        let ticket: &Ticket = delivery.lease().map_err(|error| failed(&error))?;
        ticket.set_result("42").map_err(|error| failed(&error))?;
        transaction(&store, delivery, true).map_err(|error| failed(&error))
    });
    scene.until_idle(scene.worker(unordered(), acks)).await;
    for id in [1, 2] {
        let report = scene.store.event_deliveries(EventId(id)).await.unwrap().remove(0);
        assert_eq!(report.result.as_deref(), Some("42"));
    }
}
